package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/config"
	"sluice/internal/localservers"
	"sluice/internal/process"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
	"sluice/pipeline/recovery"
	"sluice/pipeline/retry"
	"sluice/pipeline/worker"
	"sluice/webhook"
)

const (
	partitions = 16 // as shipped
	price      = 1999
	currency   = "EUR"
	settleTime = time.Minute // for a worker to persist a day's orders
)

// year is the installation.
type year struct {
	options
	servers *localservers.Servers
	redis   redis.UniversalClient
	store   *db.Store // whose plans are logged
	pool    *pgxpool.Pool
	parts   *process.Parts
	log     *slog.Logger
	stop    context.CancelFunc

	today          *pipeline.Sale
	retired, drops time.Duration // that the jobs took this month
	dropped        int64         // orders this month
}

func (y *year) open(ctx context.Context) (err error) {
	y.log = slog.New(slog.DiscardHandler) // each rebuild of a simulated day is an error to it
	if y.servers, err = localservers.StartWithClocks(ctx); err != nil {
		return err
	}
	if y.redis, err = process.OpenRedis(config.Config{RedisURL: y.servers.Redis.URL()}); err != nil {
		return err
	}
	database := y.servers.Postgres.URL()
	if err = db.Migrate(ctx, database); err != nil {
		return err
	}
	if y.pool, err = pgxpool.New(ctx, database); err != nil {
		return err
	}
	// A day passes within seconds, and the vacuum must keep up all the same.
	for _, setting := range []string{`alter system set autovacuum_naptime = '1s'`, `select pg_reload_conf()`} {
		if _, err := y.pool.Exec(ctx, setting); err != nil {
			return err
		}
	}
	explained, err := withPlans(database)
	if err != nil {
		return err
	}
	if y.store, err = db.Open(ctx, explained, db.Options{}); err != nil {
		return err
	}
	y.parts = process.NewParts(y.redis, y.store, partitions, y.log)
	err = recovery.EnsureVerified(ctx, y.redis, y.parts.Keys, y.store, partitions, y.log)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	y.stop = stop
	go y.parts.Fence.Run(running)
	// So that events are written.
	_, err = y.store.EndpointRegistry().AddEndpoint(ctx, "bench", "https://example.com/events",
		func(int64) string { return "whsec_x" }, nil)
	return err
}

// withPlans has Postgres log the plan of each statement of a connection.
func withPlans(database string) (string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return "", err
	}
	q := u.Query()
	q.Set("options", "-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0")
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // which is how a connection URL has its spaces
	return u.String(), nil
}

func (y *year) close() error {
	if y.stop != nil {
		y.stop()
	}
	if y.pool != nil {
		y.pool.Close()
	}
	if y.store != nil {
		y.store.Close()
	}
	var errs []error
	if y.redis != nil {
		errs = append(errs, y.redis.Close())
	}
	if y.servers != nil {
		errs = append(errs, y.servers.Close())
	}
	return errors.Join(errs...)
}

// day is one day: a sale, its orders, and what the jobs of a worker do in a day.
func (y *year) day(ctx context.Context, day int) error {
	ahead := time.Duration(day-1) * 24 * time.Hour
	if err := errors.Join(y.servers.Redis.SetClock(ahead), y.servers.Postgres.SetClock(ahead)); err != nil {
		return err
	}
	now := time.Now().Add(ahead)
	y.today = &pipeline.Sale{
		ID: fmt.Sprintf("day-%03d", day), Title: "Lamp of the day", Total: int64(y.orders + 1000), MaxQuantity: 1,
		OpensAt: now.Add(-time.Hour), ClosesAt: now.Add(time.Hour), PaymentWindow: 15 * time.Minute,
		UnitPrice: price, Currency: currency,
	}
	if err := y.parts.Publisher().Create(ctx, y.today); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{y.buy, y.generate, y.fill, y.deliver, y.jobs} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return y.cutLog()
}

// buy lets buyers order through Redis, a worker persist their orders, and the payment provider report what they paid.
func (y *year) buy(ctx context.Context) (err error) {
	gate := admission.New(y.redis, y.parts.Keys, admission.Options{Fence: y.parts.Fence}, y.parts.Metrics.Admission, y.log)
	defer func() { err = errors.Join(err, gate.Close(ctx)) }()
	receipts := make([]admission.Receipt, 0, y.buyers)
	for n := range y.buyers {
		request := pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%d", n), Quantity: 1}
		decision, err := gate.Admit(ctx, y.today, request)
		if err != nil || decision.Result != admission.Accepted {
			return fmt.Errorf("an order was answered %q: %w", decision.Result, err)
		}
		receipts = append(receipts, decision.Receipt)
	}
	if err := y.work(ctx, receipts[len(receipts)-1].OrderID); err != nil {
		return err
	}
	service := y.parts.Payments()
	for _, r := range receipts {
		paid, err := service.Pay(ctx, payments.Payment{
			WebhookID: "msg_" + r.OrderID, PaymentID: "pay_" + r.OrderID, SaleID: y.today.ID, OrderID: r.OrderID,
			Amount: price, Currency: currency, Actor: payments.WebhookActor,
		})
		if err != nil || paid.Outcome != payments.Paid {
			return fmt.Errorf("a payment became %q: %w", paid.Outcome, err)
		}
	}
	return nil
}

// work runs a worker until it has persisted the last order.
func (y *year) work(ctx context.Context, last string) error {
	w, err := worker.New(worker.Config{
		Redis: y.redis, Reader: y.redis, Keys: y.parts.Keys, Store: y.store, Log: y.log,
		Options: worker.Options{Partitions: partitions}, Metrics: y.parts.Metrics.Worker,
		DeadLetters: y.parts.Metrics.DeadLetter, Resubmits: y.parts.Metrics.Resubmit,
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(running)
	}()
	defer func() { stop(); <-done }()
	for until := time.Now().Add(settleTime); time.Now().Before(until); retry.Sleep(ctx, 5*time.Millisecond) {
		var stored int
		err := y.pool.QueryRow(ctx, `select count(*) from orders where sale_id = $1`, y.today.ID).Scan(&stored)
		if err != nil || stored == y.buyers {
			return err
		}
	}
	return fmt.Errorf("order %s was not persisted within %s", last, settleTime)
}

// generateQuery makes the rest of a day's orders, as they are when the day is over: of 20, 16 are paid, 3 have expired,
// and one was cancelled.
const generateQuery = `
with input as (
	select i, s.id as sale_id, s.partitions[1] as partition, w.seq + i as sequence,
		(lpad(to_hex((extract(epoch from now()) * 1000)::bigint + i / 100), 12, '0') || '7'
			|| substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid as id,
		case when i % 20 < 16 then 'paid' when i % 20 < 19 then 'expired' else 'cancelled' end as status
	from sales s
	join watermarks w on w.sale_id = s.id and w.partition = s.partitions[1]
	cross join generate_series(1, $2::integer) i
	where s.id = $1
), ordered as (
	insert into orders (sale_id, id, number, user_id, quantity, status, partition, sequence, accepted_at, pay_by, paid_at,
		payment_id, closed_at, version)
	select sale_id, id, $3::bigint * 10000000 + i, 'guest-' || i, 1, status, partition, sequence, now(),
		now() + interval '15 minutes', case when status = 'paid' then now() end,
		case when status = 'paid' then 'pay_' || id end, case when status <> 'paid' then now() end, 2
	from input
	returning *
), paid as (
	insert into payments (webhook_id, payment_id, sale_id, order_id, user_id, amount, currency, outcome, actor, decided_at)
	select 'msg_' || id, payment_id, sale_id, id, user_id, 1999, 'EUR', 'paid', 'webhook', now()
	from ordered where status = 'paid'
), released as (
	insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason, applied_at, given_back)
	select sale_id, id, sequence, user_id, quantity, partition, status, now(), true from ordered where status <> 'paid'
), sold as (
	update sales s set sold = sold + (select count(*) from ordered where status = 'paid') where s.id = $1
)
update watermarks w set seq = w.seq + $2, released = w.released + (select count(*) from ordered where status <> 'paid')
where w.sale_id = $1`

func (y *year) generate(ctx context.Context) error {
	var day int64
	if _, err := fmt.Sscanf(y.today.ID, "day-%d", &day); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, y.pool, func(tx pgx.Tx) error {
		if y.quiet {
			if _, err := tx.Exec(ctx, `set local session_replication_role = replica`); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, generateQuery, y.today.ID, y.orders-y.buyers, day)
		return err
	})
}

// slots is how many buyers one command gives to Redis.
const slots = 1000

// fill gives Redis the generated orders: the buyers' slots and the counters, as the script would have written them one
// by one. An audit of both stores says whether that is so.
func (y *year) fill(ctx context.Context) error {
	partition := y.today.Partitions[0]
	buyers, key := y.parts.Keys.Buyers(partition, y.today.ID), y.parts.Keys.Sale(partition, y.today.ID)
	pipe, live := y.redis.Pipeline(), int64(0)
	var chunk []any
	ledger, err := y.store.Ledger(ctx, y.today.ID, nil, nil, func(o pipeline.LedgerOrder) error {
		slot := lua.Slot{
			OrderID: o.OrderID, Quantity: o.Quantity, Number: o.Number, AcceptedMS: o.AcceptedAt.UnixMilli(),
			Sequence: o.Sequence,
		}
		live += int64(o.Quantity)
		if chunk = append(chunk, o.UserID, slot.String()); len(chunk) == 2*slots {
			pipe.HSet(ctx, buyers, chunk...)
			chunk = nil
		}
		return nil
	}, nil)
	if err != nil {
		return err
	}
	if len(chunk) > 0 {
		pipe.HSet(ctx, buyers, chunk...)
	}
	pipe.HSet(ctx, key, "stock", ledger.Total-live, "accepted", ledger.Watermarks[partition],
		"released", ledger.Applied[partition])
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	report, err := y.parts.Auditor().Audit(ctx, y.today)
	if err == nil && (!report.Clean() || !report.Exact || report.PostgresAlone) {
		err = fmt.Errorf("the audit of both stores: %q, exact: %v", report.Findings, report.Exact)
	}
	return err
}

// deliver has the endpoint get all events, but for the sending.
func (y *year) deliver(ctx context.Context) error {
	for {
		n, err := y.store.SequenceEvents(ctx, 10_000)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	_, err := y.pool.Exec(ctx, `update endpoints set cursor = (select coalesce(max(position), 0) from outbox)`)
	return err
}

// jobs runs the jobs of a worker until each has done what a day makes due.
func (y *year) jobs(ctx context.Context) error {
	releaser, expirer := y.parts.Releaser(), y.parts.Expirer()
	pruner := webhook.NewPruner(y.store, y.keep.Events, webhook.NewMetrics(nil), y.log)
	for _, job := range []pipeline.Job{releaser.Job(), expirer.Job(), pruner.Job(), y.parts.Eraser().Job()} {
		if err := job.Run(ctx); err != nil {
			return fmt.Errorf("job %s: %w", job.Name, err)
		}
	}
	began := time.Now()
	if err := y.parts.Retirer(y.keep.Sales).Job().Run(ctx); err != nil {
		return err
	}
	y.retired += time.Since(began)
	before, err := y.droppedOrders(ctx)
	if err != nil {
		return err
	}
	began = time.Now()
	if err := y.parts.Dropper(y.keep, nil).Job().Run(ctx); err != nil {
		return err
	}
	y.drops += time.Since(began)
	after, err := y.droppedOrders(ctx)
	y.dropped += after - before
	return err
}

func (y *year) droppedOrders(ctx context.Context) (n int64, err error) {
	err = y.pool.QueryRow(ctx, `select coalesce(sum(orders), 0)::bigint from sale_drops`).Scan(&n)
	return n, err
}

// logFile is where Postgres writes the plans.
func (y *year) logFile() string { return filepath.Join(y.servers.Dir(), "postgres", "server.log") }

// cutLog keeps the log small: the plans of a day fill some megabytes.
func (y *year) cutLog() error { return os.Truncate(y.logFile(), 0) }

// listed is a filter of a page of orders.
func listed(f lifecycle.OrderFilter) lifecycle.OrderFilter {
	f.Limit = 100
	return f
}
