package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
)

// calls is how often each hot call is timed; the median counts.
const calls = 100

// measurement is the state at the end of a month.
type measurement struct {
	day        int
	redisBytes int64
	tables     []tableState
	times      []timing
	wholeReads []string // hot statements that read a whole table
}

type tableState struct {
	name                       string
	rows, dead, table, indexes int64 // rows are estimates; sizes in bytes
	vacuums                    int64
}

type timing struct {
	name   string
	median time.Duration
}

func (y *year) measure(ctx context.Context, day int) (m measurement, err error) {
	m.day = day
	if m.redisBytes, err = y.redisMemory(ctx); err != nil {
		return m, err
	}
	if m.tables, err = y.tableStates(ctx); err != nil {
		return m, err
	}
	if err = y.cutLog(); err != nil { // plans of the calls below only
		return m, err
	}
	if m.times, err = y.hotCalls(ctx); err != nil {
		return m, err
	}
	if m.wholeReads, err = y.readWhole(); err != nil {
		return m, err
	}
	days := time.Duration(min(day, month))
	m.times = append(m.times, timing{"retire, a day", y.retired / days})
	if y.dropped > 0 {
		m.times = append(m.times, timing{"drop, 1,000 orders", y.drops * 1000 / time.Duration(y.dropped)})
	}
	y.retired, y.drops, y.dropped = 0, 0, 0
	return m, nil
}

func (y *year) redisMemory(ctx context.Context) (int64, error) {
	info, err := y.redis.Info(ctx, "memory").Result()
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
			return strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		}
	}
	return 0, errors.Join(err, errors.New("Redis did not say how much memory it uses"))
}

func (y *year) tableStates(ctx context.Context) (states []tableState, err error) {
	rows, err := y.pool.Query(ctx, `
		select relname, n_live_tup, n_dead_tup, pg_relation_size(relid), pg_indexes_size(relid), autovacuum_count
		from pg_stat_user_tables
		where relname in ('orders', 'payments', 'releases', 'outbox', 'audit_log') order by relname`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s tableState
		if err := rows.Scan(&s.name, &s.rows, &s.dead, &s.table, &s.indexes, &s.vacuums); err != nil {
			return nil, err
		}
		states = append(states, s)
	}
	return states, rows.Err()
}

// hotCalls times what runs all the time, on the newest sale and over all of them.
func (y *year) hotCalls(ctx context.Context) (times []timing, err error) {
	page, err := y.store.Orders(ctx, listed(lifecycle.OrderFilter{SaleID: y.today.ID}))
	if err != nil {
		return nil, err
	}
	some := page.Orders[len(page.Orders)/2]
	generation, err := y.store.Generation(ctx)
	if err != nil {
		return nil, err
	}
	known := pipeline.Event{ // the whole statement, and nothing that the day's books would have to explain
		SaleID: some.SaleID, OrderID: some.ID, UserID: some.UserID, Quantity: 1, Number: some.Number,
		Partition: some.Partition, Sequence: some.Sequence, AcceptedAt: some.AcceptedAt,
	}
	for _, call := range []struct {
		name string
		do   func() error
	}{
		{"persist", func() error {
			_, err := y.store.PersistOrders(ctx, generation, slices.Repeat([]pipeline.Event{known}, 100))
			return err
		}},
		{"order", func() error { _, err := y.store.Order(ctx, some.SaleID, some.ID); return err }},
		{"mine", func() error { _, err := y.store.LatestOrder(ctx, some.SaleID, some.UserID); return err }},
		{"expire", func() error { _, err := y.store.ExpireOrders(ctx, 500); return err }},
		{"page of a sale", y.page(ctx, lifecycle.OrderFilter{SaleID: y.today.ID})},
		{"page of all", y.page(ctx, lifecycle.OrderFilter{})},
		{"a buyer", y.page(ctx, lifecycle.OrderFilter{UserID: some.UserID})},
		{"payments", func() error {
			_, err := y.store.Payments(ctx, payments.Filter{OrderID: some.ID})
			return err
		}},
		{"no such order", func() error {
			_, err := y.store.Order(ctx, some.SaleID, uuid.NewString())
			if pipeline.KindOf(err) == pipeline.KindNotFound {
				err = nil
			}
			return err
		}},
		{"to retire", func() error { _, err := y.store.RetireSales(ctx, y.keep.Sales, 1); return err }},
		{"to drop", func() error { _, err := y.store.SalesToDrop(ctx, y.keep.Orders, time.Hour, 1); return err }},
	} {
		taken := make([]time.Duration, calls)
		for i := range taken {
			began := time.Now()
			if err := call.do(); err != nil {
				return nil, fmt.Errorf("%s: %w", call.name, err)
			}
			taken[i] = time.Since(began)
		}
		slices.Sort(taken)
		times = append(times, timing{call.name, taken[calls/2]})
	}
	return times, nil
}

func (y *year) page(ctx context.Context, f lifecycle.OrderFilter) func() error {
	return func() error { _, err := y.store.Orders(ctx, listed(f)); return err }
}

// wholeRead is a step of a plan that reads all of a large table.
var wholeRead = regexp.MustCompile(`Seq Scan on (orders|payments|releases|outbox)\b`)

// readWhole looks for such steps in the plans that Postgres has logged.
func (y *year) readWhole() (found []string, err error) {
	file, err := os.Open(y.logFile())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	plans := 0
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "plan:") {
			plans++
		}
		if at := wholeRead.FindString(lines.Text()); at != "" && !slices.Contains(found, at) {
			found = append(found, at)
		}
	}
	if plans < calls { // else nothing would be proved
		return nil, fmt.Errorf("Postgres has logged only %d plans", plans)
	}
	return found, lines.Err()
}

// judge says whether anything grew, and audits every sale.
func (y *year) judge(ctx context.Context, months []measurement) error {
	var errs []error
	for _, m := range months {
		if m.day > month && len(m.wholeReads) > 0 { // a small table is read whole, and rightly
			errs = append(errs, fmt.Errorf("day %d: %s", m.day, strings.Join(m.wholeReads, ", ")))
		}
	}
	// From the third month on, a day drops as much as it adds.
	if len(months) > 3 {
		steady, last := months[2], months[len(months)-1]
		errs = append(errs, grown("Redis", steady.redisBytes, last.redisBytes))
		for i, s := range steady.tables {
			if s.name == "audit_log" { // a handful of lines
				continue
			}
			l := last.tables[i]
			errs = append(errs, grown(s.name, s.table+s.indexes, l.table+l.indexes))
		}
	}
	sales, err := y.store.Sales(ctx, pipeline.SalesFilter{})
	errs = append(errs, err)
	auditor, audited, dropped := audit.NewAuditor(y.redis, y.parts.Keys, y.store), 0, 0
	for _, sale := range sales {
		report, err := auditor.Audit(ctx, sale)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !report.Clean() || !report.Exact || report.Orders != int64(y.orders):
			errs = append(errs, fmt.Errorf("sale %s: %d orders, %q", sale.ID, report.Orders, report.Findings))
		}
		audited++
		if !sale.OrdersDroppedAt.IsZero() {
			dropped++
		}
	}
	fmt.Fprintf(os.Stdout, "\n%d sales audited, %d of them by the sums of orders that were dropped.\n", audited, dropped)
	return errors.Join(errs...)
}

// most is how much larger anything may be at the end than in the third month.
const most = 1.5

func grown(what string, before, after int64) error {
	if float64(after) <= most*float64(before) {
		return nil
	}
	return fmt.Errorf("%s grew from %s to %s", what, mib(before), mib(after))
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// print prints a month, with its times as ratios to the first one's.
func (m *measurement) print(first *measurement, header bool) {
	if header {
		fmt.Fprintln(os.Stdout, "Sizes: table + indexes; dead rows of all rows; autovacuums so far. "+
			"Times: medians, ×: of the first month's.")
	}
	fmt.Fprintf(os.Stdout, "\nday %d: Redis %s\n", m.day, mib(m.redisBytes))
	for _, s := range m.tables {
		fmt.Fprintf(os.Stdout, "  %-10s %9d rows  %10s + %10s  %4.1f%% dead  %4d vacuums\n",
			s.name, s.rows, mib(s.table), mib(s.indexes), 100*float64(s.dead)/float64(max(1, s.rows+s.dead)), s.vacuums)
	}
	for _, t := range m.times {
		ratio := "     "
		for _, f := range first.times {
			if f.name == t.name {
				ratio = fmt.Sprintf("%4.2f×", float64(t.median)/float64(f.median))
			}
		}
		fmt.Fprintf(os.Stdout, "  %-20s %10s %s\n", t.name, t.median.Round(time.Microsecond), ratio)
	}
	for _, w := range m.wholeReads {
		fmt.Fprintf(os.Stdout, "  %s\n", w)
	}
}
