package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

// refuses expects a replay to be refused with a text, and to leave the letter as it was, waiting.
func (r *rig) refuses(id int64, kind pipeline.Kind, says string, set ...string) {
	r.Helper()
	_, err := r.replay(id, set...)
	wantKind(r.T, err, kind)
	if !strings.Contains(err.Error(), says) {
		r.Errorf("got %q, want it to say %q", err, says)
	}
	if letter := r.letter(id); letter.Resolution != "" {
		r.Errorf("the letter is %s, want it unresolved", letter.Resolution)
	}
}

func (r *rig) letter(id int64) pipeline.Letter {
	r.Helper()
	letter, err := r.store.Letter(r.ctx(), id)
	if err != nil {
		r.Fatal(err)
	}
	return letter
}

// strange buries what a stranger wrote into the stream of the rig's sale and returns the letter's id.
func (r *rig) strange(fields ...string) int64 {
	r.Helper()
	payload := map[string]any{}
	for name, value := range repairs(fields...) {
		payload[name] = value
	}
	sale, _ := payload["s"].(string)
	order, _ := payload["o"].(string)
	letter := pipeline.DeadLetter{
		Partition: r.sale.Partitions[0], EntryID: fmt.Sprintf("1-%d", strangers.Add(1)), SaleID: sale, OrderID: order,
		Payload: payload, Reason: pipeline.LetterUndecodable, Error: "field k is missing",
	}
	if err := r.store.BuryEvent(r.ctx(), letter, nil); err != nil {
		r.Fatal(err)
	}
	return r.lastLetter()
}

var strangers atomic.Int64

// liveOrders are those of a buyer.
func (r *rig) liveOrders(userID string) []string {
	r.Helper()
	rows, err := r.raw.Query(r.ctx(), `select id::text from orders where user_id = $1 and closed_at is null`, userID)
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			r.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// logged is the audit log, without its times.
func (r *rig) logged() string {
	r.Helper()
	var lines string
	err := r.raw.QueryRow(r.ctx(), `
		select coalesce(string_agg(actor || ' ' || action || ' ' || coalesce(sale_id, '-') || ' ' || detail, '; ' order by id), '')
		from audit_log where action in ('replay', 'discard')`).Scan(&lines)
	if err != nil {
		r.Fatal(err)
	}
	return lines
}

// TestReplayOfARefusedOrder (I6, I7): an order that Postgres refused for lack of units is replayed once there are some. What the
// refused one held comes back first, and is taken once.
func TestReplayOfARefusedOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 5}})
	p := r.sale.Partitions[0]
	if err := r.rdb.HIncrBy(r.ctx(), r.keys.Sale(p, r.sale.ID), "stock", 3).Err(); err != nil { // sold twice
		t.Fatal(err)
	}
	r.admit("ann", 5)
	refused := r.admit("bob", 3)
	worker := r.startWorker(r.store, pipeline.WorkerOptions{}) // its releases are not applied
	r.settled()
	worker.stop()
	if err := r.rdb.HIncrBy(r.ctx(), r.keys.Sale(p, r.sale.ID), "stock", -3).Err(); err != nil {
		t.Fatal(err)
	}
	id := r.lastLetter()
	r.refuses(id, pipeline.KindConflict, "fewer than 3 units left")
	if _, held := r.slots(r.sale)["bob"]; held {
		t.Error("the release of the refused order was not applied")
	}
	if _, err := r.publisher.Change(r.ctx(), r.sale.ID, "test", pipeline.SaleChange{AddStock: 2}); err != nil {
		t.Fatal(err)
	}
	order := r.mustReplay(id, "q=2")
	r.work()
	if got := r.liveOrders("bob"); fmt.Sprint(got) != fmt.Sprint([]string{order}) || order == refused.OrderID {
		t.Errorf("bob has %v, want the new order %s alone", got, order)
	}
	r.balanced(r.stored(r.sale.ID), 7)
	want := fmt.Sprintf(`ann replay drop-1 {"set": {"q": "2"}, "order_id": "%s", "dead_letter": %d}`, order, id)
	if got := r.logged(); got != want {
		t.Errorf("got log %s, want %s", got, want)
	}
	r.again(id, "replayed", order)
}

// again expects that what is done is told, and not done again.
func (r *rig) again(id int64, says ...string) {
	r.Helper()
	before, log, when := r.dump(r.sale), r.logged(), r.letter(id).ResolvedAt
	_, replayed := r.replay(id)
	_, discarded := r.replayer(r.rdb, r.store).Discard(r.ctx(), id, "ann", "")
	for _, err := range []error{replayed, discarded} {
		wantKind(r.T, err, pipeline.KindConflict)
		for _, text := range append(says, when.UTC().Format("2006-01-02")) {
			if !strings.Contains(err.Error(), text) {
				r.Errorf("got %q, want it to say %q", err, text)
			}
		}
	}
	if r.dump(r.sale) != before || r.logged() != log {
		r.Error("it was done again")
	}
}

// TestReplayOfAWreckedEntry (I4): an accept whose entry was wrecked in the stream still holds its units and its buyer's slot.
// Its replay persists that very order, which the buyer has a receipt for.
func TestReplayOfAWreckedEntry(t *testing.T) {
	t.Parallel()
	for name, wreck := range map[string]func(map[string]any){
		"sequence, number and time": func(f map[string]any) { f["k"], f["n"], f["t"] = "x", "-1", "\xff" },
		"all but the buyer":         func(f map[string]any) { delete(f, "k"); f["o"], f["n"], f["t"] = "?", "", "" },
		"the quantity":              func(f map[string]any) { f["q"] = "2x" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{})
			p := r.sale.Partitions[0]
			receipt := r.admit("ann", 2)
			entry := r.entries(p)[0]
			if err := r.rdb.Del(r.ctx(), r.keys.Orders(p)).Err(); err != nil { // so that its id can be used again
				t.Fatal(err)
			}
			wreck(entry.Values)
			if err := r.rdb.XAdd(r.ctx(), &redis.XAddArgs{Stream: r.keys.Orders(p), ID: entry.ID, Values: entry.Values}).Err(); err != nil {
				t.Fatal(err)
			}
			r.work()
			id := r.lastLetter()
			if name == "the quantity" {
				r.refuses(id, pipeline.KindInvalid, `field q: "2x"`)
			}
			r.refuses(id, pipeline.KindInvalid, "accepted for 2 units", "q=3")
			if order := r.mustReplay(id, "q=2"); order != receipt.OrderID {
				t.Errorf("got order %s, want the accepted one, %s", order, receipt.OrderID)
			}
			order, err := r.store.Order(r.ctx(), r.sale.ID, receipt.OrderID)
			if err != nil || order.Number != receipt.Number || !order.AcceptedAt.Equal(receipt.AcceptedAt) || !order.Status.Live() {
				t.Errorf("got %+v, %v, want the order of receipt %+v", order, err, receipt)
			}
			r.balanced(r.sale, 2)
			r.again(id, "replayed", receipt.OrderID)
		})
	}
}

// TestReplaySaysWhichFieldIsWrong: only sale, buyer and quantity are needed, and may be repaired.
func TestReplaySaysWhichFieldIsWrong(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	for _, test := range []struct{ entry, set, says string }{
		{"s=drop-1 u=ann", "", "field q is missing"},
		{"s=drop-1 u=ann q=0", "", `field q: "0"`},
		{"s=drop-1 u=ann q=1001", "", `field q: "1001"`},
		{"s=drop-1 u=ann q=1", "q=many", `field q: "many"`},
		{"s=drop-1 q=1", "", "field u is missing"},
		{"s=drop-1 u=\xff q=1", "", "field u: user id is not valid UTF-8"},
		{"u=ann q=1", "", "field s is missing"},
		{"s=Drop! u=ann q=1", "", `field s: "Drop!"`},
		{"s=drop-2 u=ann q=1", "", "field s: there is no sale drop-2"},
		{"s=drop-1 u=ann q=1 v=9", "", "field v: schema version 9"},
		{"s=drop-1 u=ann q=1", "k=1", `field "k" can't be set: a replay reads s, u, q, v`},
		{"s=drop-1 u=ann q=1", "u=" + strings.Repeat("x", 1001), "field u: use at most 1000 bytes"},
	} {
		id := r.strange(strings.Fields(test.entry)...)
		var set []string
		if test.set != "" {
			set = append(set, test.set)
		}
		r.refuses(id, pipeline.KindInvalid, test.says, set...)
	}
	if r.streamLength() != 0 || r.stock(r.sale) != 100 {
		t.Error("a refused replay took something")
	}
	id := r.strange("k=x", "o=?", "n=", "v=9")
	r.mustReplay(id, "s=drop-1", "u=ann", "q=1", "v=1")
	r.work()
	r.balanced(r.sale, 1)
	_, err := r.replay(1_000_000)
	wantKind(t, err, pipeline.KindNotFound)
}

// TestReplayThatCanNotBeTaken: every refusal of Redis is told in words and leaves the letter waiting; it can be replayed once
// the reason is gone.
func TestReplayThatCanNotBeTaken(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	p := r.sale.Partitions[0]
	other := r.admit("bob", 1)
	letter := r.strange("s=drop-1", "u=ann", "q=4")
	refused := func(says string, set ...string) {
		t.Helper()
		r.refuses(letter, pipeline.KindConflict, says, set...)
	}
	refused("buyer bob has order "+other.OrderID, "u=bob")
	r.work() // now Postgres says so
	if err := r.rdb.HDel(r.ctx(), r.keys.Buyers(p, r.sale.ID), "bob").Err(); err != nil {
		t.Fatal(err)
	}
	refused("buyer bob has order "+other.OrderID, "u=bob")
	refused("more than the 10 that sale drop-1 allows", "q=11")
	state := func(to pipeline.SaleState) {
		t.Helper()
		if _, err := r.publisher.Change(r.ctx(), r.sale.ID, "test", pipeline.SaleChange{State: &to}); err != nil {
			t.Fatal(err)
		}
	}
	state(pipeline.SalePaused)
	refused("is paused")
	state(pipeline.SaleActive)
	window := func(opens, closes time.Duration) {
		t.Helper()
		from, to := time.Now().Add(opens), time.Now().Add(closes)
		if _, err := r.publisher.Change(r.ctx(), r.sale.ID, "test", pipeline.SaleChange{OpensAt: &from, ClosesAt: &to}); err != nil {
			t.Fatal(err)
		}
	}
	window(time.Hour, 2*time.Hour)
	refused("not open yet")
	window(-2*time.Hour, -time.Hour)
	refused("is closed")
	window(-time.Hour, time.Hour)
	key := r.keys.Sale(p, r.sale.ID)
	stock := r.stock(r.sale)
	if err := r.rdb.HSet(r.ctx(), key, "stock", 3).Err(); err != nil {
		t.Fatal(err)
	}
	refused("fewer than 4 units left")
	if err := r.rdb.HSet(r.ctx(), key, "stock", stock).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.rdb.Rename(r.ctx(), key, key+":away").Err(); err != nil {
		t.Fatal(err)
	}
	r.refuses(letter, pipeline.KindNotLoaded, "does not hold sale drop-1")
	if err := r.rdb.Rename(r.ctx(), key+":away", key).Err(); err != nil {
		t.Fatal(err)
	}
	r.mustReplay(letter)
	if got := r.logged(); strings.Count(got, "replay") != 1 {
		t.Errorf("got log %s, want one line", got)
	}
}

// TestReplayWaitsForItsRelease: while Redis can't take back what the letter's order held, the replay says so.
func TestReplayWaitsForItsRelease(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	p := r.sale.Partitions[0]
	r.admit("ann", 1)
	event := r.events(r.sale)[0]
	letter := pipeline.DeadLetter{
		Partition: p, EntryID: event.EntryID, SaleID: event.SaleID, OrderID: event.OrderID, Reason: pipeline.LetterRefused,
		Payload: r.entries(p)[0].Values,
	}
	if err := r.store.BuryEvent(r.ctx(), letter, &event); err != nil {
		t.Fatal(err)
	}
	r.forget(event)
	key := r.keys.Sale(p, r.sale.ID)
	if err := r.rdb.Rename(r.ctx(), key, key+":away").Err(); err != nil {
		t.Fatal(err)
	}
	r.refuses(r.lastLetter(), pipeline.KindNotLoaded, "can't be given back yet")
	if err := r.rdb.Rename(r.ctx(), key+":away", key).Err(); err != nil {
		t.Fatal(err)
	}
	r.mustReplay(r.lastLetter())
	r.work()
	r.balanced(r.sale, 1)
}

// mortal is the store of a process that dies at one step, before or after it. Everything up to then is the real store's.
type mortal struct {
	*db.Store
	step string
	died bool
}

var errDied = errors.New("died here")

func step[T any](m *mortal, name string, call func() (T, error)) (T, error) {
	var none T
	if m.died || m.step == "before "+name {
		m.died = true
		return none, errDied
	}
	got, err := call()
	if m.step == "after "+name {
		m.died = true
		return none, errDied
	}
	return got, err
}

func (m *mortal) OrderReleases(ctx context.Context, saleID, orderID string) ([]pipeline.Release, error) {
	return step(m, "releases", func() ([]pipeline.Release, error) { return m.Store.OrderReleases(ctx, saleID, orderID) })
}

func (m *mortal) BeginReplay(ctx context.Context, id int64, orderID string, as pipeline.ReplayAs) (string, pipeline.ReplayAs, error) {
	type stored struct {
		id string
		as pipeline.ReplayAs
	}
	got, err := step(m, "begin", func() (stored, error) {
		id, as, err := m.Store.BeginReplay(ctx, id, orderID, as)
		return stored{id, as}, err
	})
	return got.id, got.as, err
}

func (m *mortal) Order(ctx context.Context, saleID, orderID string) (pipeline.Order, error) {
	return step(m, "order", func() (pipeline.Order, error) { return m.Store.Order(ctx, saleID, orderID) })
}

func (m *mortal) ResolveLetter(ctx context.Context, id int64, how pipeline.LetterResolution) (time.Time, error) {
	return step(m, "resolve", func() (time.Time, error) { return m.Store.ResolveLetter(ctx, id, how) })
}

// TestReplayThatDiesIsOneOrder (I6): wherever a replay dies, and whatever became of its order until it is repeated, there is one
// order, one line in the audit log, and no unit is gone.
func TestReplayThatDiesIsOneOrder(t *testing.T) {
	t.Parallel()
	for _, at := range []string{
		"before releases", "after releases", "before begin", "after begin", "before order", "after order", "lost admit",
		"before resolve", "after resolve",
	} {
		for _, meanwhile := range []string{"nothing", "persisted", "ended"} {
			t.Run(at+", then "+meanwhile, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, rigOptions{})
				id := r.strange("s=drop-1", "u=ann", "q=2")
				died(r, id, at)
				live := int64(2)
				if meanwhile != "nothing" {
					r.work()
				}
				if admitted := r.rows(r.sale.ID) == 1; meanwhile == "ended" && admitted {
					live = 0
					r.cancelAll()
				}
				_, err := r.replay(id)
				if at == "after resolve" {
					wantKind(t, err, pipeline.KindConflict)
				} else if err != nil {
					t.Fatalf("repeated: %v", err)
				}
				r.work()
				if got := r.rows(r.sale.ID); got != 1 {
					t.Errorf("%d orders, want 1", got)
				}
				letter := r.letter(id)
				if _, err := r.store.Order(r.ctx(), r.sale.ID, letter.ReplayID); err != nil || letter.Resolution != pipeline.LetterReplayed {
					t.Errorf("got letter %+v, %v, want it replayed as the order", letter, err)
				}
				if got := r.logged(); strings.Count(got, "replay") != 1 {
					t.Errorf("got log %q, want one line", got)
				}
				if got := r.letters(); fmt.Sprint(got) != "map[undecodable:1]" {
					t.Errorf("got letters %v, want no new one", got)
				}
				r.balanced(r.sale, live)
			})
		}
	}
}

// died replays a letter and dies at a step.
func died(r *rig, id int64, at string) {
	r.Helper()
	rdb, store := r.rdb, &mortal{Store: r.store, step: at}
	if at == "lost admit" {
		if d, err := r.try(pipeline.OrderRequest{UserID: "eve", Quantity: 11}); err != nil || d.Result != pipeline.AdmissionOverLimit {
			r.Fatalf("got %s, %v, want a refusal and the script loaded", d.Result, err)
		}
		proxy := through(r.T, redisURL(r))
		rdb = testkit.Client(r.T, proxy.URL())
		proxy.DropReplyTo("\r\nnew\r\n", 1) // what only admit is told
		defer func() {
			if proxy.Lost() != 1 || len(r.slots(r.sale)) != 1 {
				r.Errorf("%d replies were lost and %d slots taken, want 1 and 1", proxy.Lost(), len(r.slots(r.sale)))
			}
		}()
	}
	_, err := r.replayer(rdb, store).Replay(r.ctx(), id, "ann", nil)
	if err == nil {
		r.Fatalf("it did not die %s", at)
	}
	if at == "lost admit" {
		wantKind(r.T, err, pipeline.KindUnavailable)
	}
}

// cancelAll ends every live order and gives back what they held, as a cancellation does.
func (r *rig) cancelAll() {
	r.Helper()
	r.exec(1, `
		with ended as (
			update orders set status = 'cancelled', closed_at = now() where closed_at is null returning *
		), counted as (
			update sales set sold = sold - (select sum(quantity) from ended)
		)
		insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
		select sale_id, id, sequence, user_id, quantity, partition, 'cancelled' from ended`)
	if err := r.releaser().Apply(r.ctx()); err != nil {
		r.Fatal(err)
	}
}

// TestReplayOfUnknownOutcome: while it is not known whether a replay made an order, no other one is made of the letter, and it
// is not thrown away.
func TestReplayOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	id := r.strange("s=drop-1", "u=ann", "q=2")
	died(r, id, "before resolve")
	r.refuses(id, pipeline.KindConflict, "2 units by buyer ann", "u=bob")
	r.refuses(id, pipeline.KindConflict, "2 units by buyer ann", "q=1")
	_, err := r.replayer(r.rdb, r.store).Discard(r.ctx(), id, "ann", "")
	wantKind(t, err, pipeline.KindConflict)
	r.mustReplay(id)
	r.work()
	r.balanced(r.sale, 2)
}

// TestReplaysAtOnce (I6): however many operators replay a letter at once, one order comes of it.
func TestReplaysAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	id := r.strange("s=drop-1", "u=ann", "q=2")
	errs := make([]error, 8)
	together(len(errs), func(i int) { _, errs[i] = r.replay(id) })
	done := 0
	for _, err := range errs {
		switch {
		case err == nil:
			done++
		case pipeline.KindOf(err) != pipeline.KindConflict || !strings.Contains(err.Error(), "was replayed"):
			t.Errorf("got %v, want a conflict that says it was replayed", err)
		}
	}
	if done != 1 {
		t.Errorf("%d replays went well, want 1", done)
	}
	r.work()
	r.balanced(r.sale, 2)
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	id := r.strange("s=drop-1", "u=ann", "q=2")
	discard := func(actor, note string) error {
		_, err := r.replayer(r.rdb, r.store).Discard(r.ctx(), id, actor, note)
		return err
	}
	wantKind(t, discard("", ""), pipeline.KindInvalid)
	wantKind(t, discard(strings.Repeat("x", 129), ""), pipeline.KindInvalid)
	wantKind(t, discard("ann", strings.Repeat("x", 1001)), pipeline.KindInvalid)
	wantKind(t, discard("ann", "a\x00b"), pipeline.KindInvalid)
	if err := discard("ann", "a test order"); err != nil {
		t.Fatal(err)
	}
	letter := r.letter(id)
	if letter.Resolution != pipeline.LetterDiscarded || letter.Note != "a test order" || letter.ResolvedAt.IsZero() {
		t.Errorf("got %+v, want it discarded", letter)
	}
	want := fmt.Sprintf(`ann discard drop-1 {"note": "a test order", "dead_letter": %d}`, id)
	if got := r.logged(); got != want {
		t.Errorf("got log %s, want %s", got, want)
	}
	r.again(id, "discarded")
	_, err := r.replayer(r.rdb, r.store).Discard(r.ctx(), 1_000_000, "ann", "")
	wantKind(t, err, pipeline.KindNotFound)
}
