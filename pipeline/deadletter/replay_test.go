package deadletter_test

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
	"sluice/pipeline/admission"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

// refuses expects a replay to be refused with a text, and to leave the letter as it was, waiting.
func refuses(r *pipelinetest.Rig, id int64, kind pipeline.Kind, says string, set ...string) {
	r.Helper()
	_, err := r.Replay(id, set...)
	pipelinetest.WantKind(r.T, err, kind)
	if !strings.Contains(err.Error(), says) {
		r.Errorf("got %q, want it to say %q", err, says)
	}
	if letter := letter(r, id); letter.Resolution != "" {
		r.Errorf("the letter is %s, want it unresolved", letter.Resolution)
	}
}

func letter(r *pipelinetest.Rig, id int64) deadletter.Letter {
	r.Helper()
	letter, err := r.Store.Letter(r.Ctx(), id)
	if err != nil {
		r.Fatal(err)
	}
	return letter
}

// strange buries what a stranger wrote into the stream of the rig's sale and returns the letter's id.
func strange(r *pipelinetest.Rig, fields ...string) int64 {
	r.Helper()
	payload := map[string]any{}
	for name, value := range pipelinetest.Repairs(fields...) {
		payload[name] = value
	}
	sale, _ := payload["s"].(string)
	order, _ := payload["o"].(string)
	letter := deadletter.Message{
		Partition: r.Sale.Partitions[0], EntryID: fmt.Sprintf("1-%d", strangers.Add(1)), SaleID: sale, OrderID: order,
		Payload: payload, Reason: deadletter.Undecodable, Error: "field k is missing",
	}
	if err := r.Store.BuryEvent(r.Ctx(), letter, nil); err != nil {
		r.Fatal(err)
	}
	return r.LastLetter()
}

var strangers atomic.Int64

// liveOrders are those of a buyer.
func liveOrders(r *pipelinetest.Rig, userID string) []string {
	r.Helper()
	rows, err := r.SQL.Query(r.Ctx(), `select id::text from orders where user_id = $1 and closed_at is null`, userID)
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

// logged is the audit log, without its times and without what was before and after, which db's own tests compare.
func logged(r *pipelinetest.Rig) string {
	r.Helper()
	var lines string
	err := r.SQL.QueryRow(r.Ctx(), `
		select coalesce(
			string_agg(actor || ' ' || action || ' ' || coalesce(sale_id, '-') || ' ' || (detail - 'before' - 'after'),
				'; ' order by id), '')
		from audit_log where action in ('replay', 'discard')`).Scan(&lines)
	if err != nil {
		r.Fatal(err)
	}
	return lines
}

// TestReplayOfARefusedOrder (I6, I7): an order that Postgres refused for lack of units is replayed once there are some.
// What the refused one had taken comes back first, and is taken once.
func TestReplayOfARefusedOrder(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 5}})
	p := r.Sale.Partitions[0]
	if err := r.Redis.HIncrBy(r.Ctx(), r.Keys.Sale(p, r.Sale.ID), "stock", 3).Err(); err != nil { // sold twice
		t.Fatal(err)
	}
	r.Admit("ann", 5)
	refused := r.Admit("bob", 3)
	worker := r.StartWorker(r.Store, worker.Options{}) // its releases are not applied
	r.Settled()
	worker.Stop()
	if err := r.Redis.HIncrBy(r.Ctx(), r.Keys.Sale(p, r.Sale.ID), "stock", -3).Err(); err != nil {
		t.Fatal(err)
	}
	id := r.LastLetter()
	refuses(r, id, pipeline.KindConflict, "fewer than 3 units left")
	if _, taken := r.Slots(r.Sale)["bob"]; taken {
		t.Error("the release of the refused order was not applied")
	}
	if _, err := r.Publisher.Change(r.Ctx(), r.Sale.ID, "test", pipeline.SaleChange{AddStock: 2}); err != nil {
		t.Fatal(err)
	}
	order := r.MustReplay(id, "q=2")
	r.Work()
	if got := liveOrders(r, "bob"); fmt.Sprint(got) != fmt.Sprint([]string{order}) || order == refused.OrderID {
		t.Errorf("bob has %v, want the new order %s alone", got, order)
	}
	r.Balanced(r.Stored(r.Sale.ID), 7)
	want := fmt.Sprintf(`ann replay drop-1 {"set": {"q": "2"}, "order_id": "%s", "dead_letter": %d}`, order, id)
	if got := logged(r); got != want {
		t.Errorf("got log %s, want %s", got, want)
	}
	again(r, id, "replayed", order)
}

// TestReplayThenRedisLosesAll: a letter that says replayed has its order in Postgres, whatever Redis loses.
func TestReplayThenRedisLosesAll(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 5}})
	p := r.Sale.Partitions[0]
	if err := r.Redis.XAdd(r.Ctx(), &redis.XAddArgs{Stream: r.Keys.Orders(p), Values: map[string]any{
		"v": "1", "s": r.Sale.ID, "u": "ann", "q": "1", // the rest is wrecked
	}}).Err(); err != nil {
		t.Fatal(err)
	}
	worker := r.StartWorker(r.Store, worker.Options{})
	r.Settled()
	worker.Stop()
	order := r.MustReplay(r.LastLetter())
	r.Flush()
	r.Ensure()
	if got := liveOrders(r, "ann"); fmt.Sprint(got) != fmt.Sprint([]string{order}) {
		t.Errorf("ann has %v, want order %s", got, order)
	}
	r.Balanced(r.Sale, 1)
}

// again expects that a repetition says what was done, and does nothing.
func again(r *pipelinetest.Rig, id int64, says ...string) {
	r.Helper()
	before, log, when := r.Dump(r.Sale), logged(r), letter(r, id).ResolvedAt
	_, replayed := r.Replay(id)
	_, discarded := r.Replayer(r.Redis, r.Store).Discard(r.Ctx(), id, "ann", "")
	for _, err := range []error{replayed, discarded} {
		pipelinetest.WantKind(r.T, err, pipeline.KindConflict)
		for _, text := range append(says, when.UTC().Format("2006-01-02")) {
			if !strings.Contains(err.Error(), text) {
				r.Errorf("got %q, want it to say %q", err, text)
			}
		}
	}
	if r.Dump(r.Sale) != before || logged(r) != log {
		r.Error("it was done again")
	}
}

// TestReplayOfAWreckedEntry (I4): an accept whose entry was wrecked in the stream still has its units and its buyer's
// slot. Its replay persists that very order, which the buyer has a receipt for.
func TestReplayOfAWreckedEntry(t *testing.T) {
	t.Parallel()
	for name, wreck := range map[string]func(map[string]any){
		"sequence, number and time": func(f map[string]any) { f["k"], f["n"], f["t"] = "x", "-1", "\xff" },
		"all but the buyer":         func(f map[string]any) { delete(f, "k"); f["o"], f["n"], f["t"] = "?", "", "" },
		"the quantity":              func(f map[string]any) { f["q"] = "2x" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := pipelinetest.New(t, pipelinetest.Options{})
			p := r.Sale.Partitions[0]
			receipt := r.Admit("ann", 2)
			entry := r.Entries(p)[0]
			if err := r.Redis.Del(r.Ctx(), r.Keys.Orders(p)).Err(); err != nil { // so that its id can be used again
				t.Fatal(err)
			}
			wreck(entry.Values)
			wrecked := &redis.XAddArgs{Stream: r.Keys.Orders(p), ID: entry.ID, Values: entry.Values}
			if err := r.Redis.XAdd(r.Ctx(), wrecked).Err(); err != nil {
				t.Fatal(err)
			}
			r.Work()
			id := r.LastLetter()
			if name == "the quantity" {
				refuses(r, id, pipeline.KindInvalid, `field q: "2x"`)
			}
			refuses(r, id, pipeline.KindInvalid, "accepted for 2 units", "q=3")
			if order := r.MustReplay(id, "q=2"); order != receipt.OrderID {
				t.Errorf("got order %s, want the accepted one, %s", order, receipt.OrderID)
			}
			order, err := r.Store.Order(r.Ctx(), r.Sale.ID, receipt.OrderID)
			if err != nil || order.Number != receipt.Number || !order.AcceptedAt.Equal(receipt.AcceptedAt) ||
				!order.Status.Live() {
				t.Errorf("got %+v, %v, want the order of receipt %+v", order, err, receipt)
			}
			r.Balanced(r.Sale, 2)
			again(r, id, "replayed", receipt.OrderID)
		})
	}
}

// TestReplaySaysWhichFieldIsWrong: only sale, buyer and quantity are needed, and may be repaired.
func TestReplaySaysWhichFieldIsWrong(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
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
		id := strange(r, strings.Fields(test.entry)...)
		var set []string
		if test.set != "" {
			set = append(set, test.set)
		}
		refuses(r, id, pipeline.KindInvalid, test.says, set...)
	}
	if r.StreamLength() != 0 || r.Stock(r.Sale) != 100 {
		t.Error("a refused replay took something")
	}
	id := strange(r, "k=x", "o=?", "n=", "v=9")
	r.MustReplay(id, "s=drop-1", "u=ann", "q=1", "v=1")
	r.Work()
	r.Balanced(r.Sale, 1)
	_, err := r.Replay(1_000_000)
	pipelinetest.WantKind(t, err, pipeline.KindNotFound)
}

// TestReplayThatCanNotBeTaken: every refusal of Redis is explained in words and leaves the letter waiting; it can be
// replayed once the reason is gone.
func TestReplayThatCanNotBeTaken(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	p := r.Sale.Partitions[0]
	other := r.Admit("bob", 1)
	letter := strange(r, "s=drop-1", "u=ann", "q=4")
	refused := func(says string, set ...string) {
		t.Helper()
		refuses(r, letter, pipeline.KindConflict, says, set...)
	}
	refused("buyer bob has order "+other.OrderID, "u=bob")
	r.Work() // now Postgres says so
	if err := r.Redis.HDel(r.Ctx(), r.Keys.Buyers(p, r.Sale.ID), "bob").Err(); err != nil {
		t.Fatal(err)
	}
	refused("buyer bob has order "+other.OrderID, "u=bob")
	refused("more than the 10 that sale drop-1 allows", "q=11")
	state := func(to pipeline.SaleState) {
		t.Helper()
		if _, err := r.Publisher.Change(r.Ctx(), r.Sale.ID, "test", pipeline.SaleChange{State: &to}); err != nil {
			t.Fatal(err)
		}
	}
	state(pipeline.SalePaused)
	refused("is paused")
	state(pipeline.SaleActive)
	window := func(opens, closes time.Duration) {
		t.Helper()
		from, to := time.Now().Add(opens), time.Now().Add(closes)
		r.Change(pipeline.SaleChange{OpensAt: &from, ClosesAt: &to})
	}
	window(time.Hour, 2*time.Hour)
	refused("not open yet")
	window(-2*time.Hour, -time.Hour)
	refused("is closed")
	window(-time.Hour, time.Hour)
	key := r.Keys.Sale(p, r.Sale.ID)
	stock := r.Stock(r.Sale)
	if err := r.Redis.HSet(r.Ctx(), key, "stock", 3).Err(); err != nil {
		t.Fatal(err)
	}
	refused("fewer than 4 units left")
	if err := r.Redis.HSet(r.Ctx(), key, "stock", stock).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Redis.Rename(r.Ctx(), key, key+":away").Err(); err != nil {
		t.Fatal(err)
	}
	refuses(r, letter, pipeline.KindNotLoaded, "does not hold sale drop-1")
	if err := r.Redis.Rename(r.Ctx(), key+":away", key).Err(); err != nil {
		t.Fatal(err)
	}
	r.MustReplay(letter)
	if got := logged(r); strings.Count(got, "replay") != 1 {
		t.Errorf("got log %s, want one line", got)
	}
}

// TestReplayWaitsForItsRelease: while Redis can't take back the units of the letter's order, the replay says so.
func TestReplayWaitsForItsRelease(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	p := r.Sale.Partitions[0]
	r.Admit("ann", 1)
	event := r.Events(r.Sale)[0]
	letter := deadletter.Message{
		Partition: p, EntryID: event.EntryID, SaleID: event.SaleID, OrderID: event.OrderID, Reason: deadletter.Refused,
		Payload: r.Entries(p)[0].Values,
	}
	if err := r.Store.BuryEvent(r.Ctx(), letter, &event); err != nil {
		t.Fatal(err)
	}
	r.Forget(event)
	key := r.Keys.Sale(p, r.Sale.ID)
	if err := r.Redis.Rename(r.Ctx(), key, key+":away").Err(); err != nil {
		t.Fatal(err)
	}
	refuses(r, r.LastLetter(), pipeline.KindNotLoaded, "can't be given back yet")
	if err := r.Redis.Rename(r.Ctx(), key+":away", key).Err(); err != nil {
		t.Fatal(err)
	}
	r.MustReplay(r.LastLetter())
	r.Work()
	r.Balanced(r.Sale, 1)
}

// mortal is the store of a process that dies at one step, before or after it. Everything up to then is the real
// store's.
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

func (m *mortal) BeginReplay(
	ctx context.Context, id int64, orderID string, as deadletter.ReplayAs,
) (string, deadletter.ReplayAs, error) {
	type stored struct {
		id string
		as deadletter.ReplayAs
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

func (m *mortal) ResolveLetter(ctx context.Context, id int64, how deadletter.LetterResolution) (time.Time, error) {
	return step(m, "resolve", func() (time.Time, error) { return m.Store.ResolveLetter(ctx, id, how) })
}

// TestReplayThatDiesIsOneOrder (I6): wherever a replay dies, and whatever became of its order until it is repeated,
// there is one order, one line in the audit log, and no unit is gone.
func TestReplayThatDiesIsOneOrder(t *testing.T) {
	t.Parallel()
	for _, at := range []string{
		"before releases", "after releases", "before begin", "after begin", "before order", "after order", "lost admit",
		"before resolve", "after resolve",
	} {
		for _, meanwhile := range []string{"nothing", "persisted", "ended"} {
			t.Run(at+", then "+meanwhile, func(t *testing.T) {
				t.Parallel()
				r := pipelinetest.New(t, pipelinetest.Options{})
				id := strange(r, "s=drop-1", "u=ann", "q=2")
				died(r, id, at)
				live := int64(2)
				if meanwhile != "nothing" {
					r.Work()
				}
				if admitted := r.Rows(r.Sale.ID) == 1; meanwhile == "ended" && admitted {
					live = 0
					cancelAll(r)
				}
				_, err := r.Replay(id)
				if at == "after resolve" {
					pipelinetest.WantKind(t, err, pipeline.KindConflict)
				} else if err != nil {
					t.Fatalf("repeated: %v", err)
				}
				r.Work()
				if got := r.Rows(r.Sale.ID); got != 1 {
					t.Errorf("%d orders, want 1", got)
				}
				letter := letter(r, id)
				if _, err := r.Store.Order(r.Ctx(), r.Sale.ID, letter.ReplayID); err != nil ||
					letter.Resolution != deadletter.Replayed {
					t.Errorf("got letter %+v, %v, want it replayed as the order", letter, err)
				}
				if got := logged(r); strings.Count(got, "replay") != 1 {
					t.Errorf("got log %q, want one line", got)
				}
				if got := r.Letters(); fmt.Sprint(got) != "map[undecodable:1]" {
					t.Errorf("got letters %v, want no new one", got)
				}
				r.Balanced(r.Sale, live)
			})
		}
	}
}

// died replays a letter and dies at a step.
func died(r *pipelinetest.Rig, id int64, at string) {
	r.Helper()
	rdb, store := r.Redis, &mortal{Store: r.Store, step: at}
	if at == "lost admit" {
		if d, err := r.Try(pipeline.OrderRequest{UserID: "eve", Quantity: 11}); err != nil ||
			d.Result != admission.OverLimit {
			r.Fatalf("got %s, %v, want a refusal and the script loaded", d.Result, err)
		}
		proxy := pipelinetest.Through(r.T, pipelinetest.RedisURL(r))
		rdb = testkit.Client(r.T, proxy.URL())
		proxy.DropReplyTo("\r\nnew\r\n", 1) // bytes that only the reply to admit has
		defer func() {
			if proxy.Lost() != 1 || len(r.Slots(r.Sale)) != 1 {
				r.Errorf("%d replies were lost and %d slots taken, want 1 and 1", proxy.Lost(), len(r.Slots(r.Sale)))
			}
		}()
	}
	_, err := r.Replayer(rdb, store).Replay(r.Ctx(), id, "ann", nil)
	if err == nil {
		r.Fatalf("it did not die %s", at)
	}
	if at == "lost admit" {
		pipelinetest.WantKind(r.T, err, pipeline.KindUnavailable)
	}
}

// cancelAll ends every live order and gives back its units, as a cancellation does.
func cancelAll(r *pipelinetest.Rig) {
	r.Helper()
	r.Exec(1, `
		with ended as (
			update orders set status = 'cancelled', closed_at = now() where closed_at is null returning *
		), counted as (
			update sales set sold = sold - (select sum(quantity) from ended)
		)
		insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
		select sale_id, id, sequence, user_id, quantity, partition, 'cancelled' from ended`)
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		r.Fatal(err)
	}
}

// TestReplayOfUnknownOutcome: while it is not known whether a replay made an order, no other one is made of the letter,
// and it is not thrown away.
func TestReplayOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	id := strange(r, "s=drop-1", "u=ann", "q=2")
	died(r, id, "before resolve")
	refuses(r, id, pipeline.KindConflict, "2 units by buyer ann", "u=bob")
	refuses(r, id, pipeline.KindConflict, "2 units by buyer ann", "q=1")
	_, err := r.Replayer(r.Redis, r.Store).Discard(r.Ctx(), id, "ann", "")
	pipelinetest.WantKind(t, err, pipeline.KindConflict)
	r.MustReplay(id)
	r.Work()
	r.Balanced(r.Sale, 2)
}

// TestReplaysAtOnce (I6): however many operators replay a letter at once, one order comes of it.
func TestReplaysAtOnce(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	id := strange(r, "s=drop-1", "u=ann", "q=2")
	errs := make([]error, 8)
	pipelinetest.Together(len(errs), func(i int) { _, errs[i] = r.Replay(id) })
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
	r.Work()
	r.Balanced(r.Sale, 2)
}

// overtaken is a store on which something else happens right after the letter was read first.
type overtaken struct {
	*db.Store
	meanwhile func()
}

func (o *overtaken) Letter(ctx context.Context, id int64) (deadletter.Letter, error) {
	letter, err := o.Store.Letter(ctx, id)
	if meanwhile := o.meanwhile; meanwhile != nil {
		o.meanwhile = nil
		meanwhile()
	}
	return letter, err
}

// A replay that another one overtakes takes that one's order for its own, and not for one that forbids it.
func TestAnOvertakenReplay(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	first, second := strange(r, "s=drop-1", "u=ann", "q=2"), strange(r, "s=drop-1", "u=bob", "q=1")
	overtake := func(id int64, meanwhile func()) error {
		_, err := r.Replayer(r.Redis, &overtaken{r.Store, meanwhile}).Replay(r.Ctx(), id, "ann", nil)
		return err
	}
	if err := overtake(first, func() { died(r, first, "before resolve") }); err != nil {
		t.Errorf("by one that died: %v", err)
	}
	err := overtake(second, func() { r.MustReplay(second) })
	if pipeline.KindOf(err) != pipeline.KindConflict || !strings.Contains(err.Error(), "was replayed") {
		t.Errorf("by one that is done: got %v, want a conflict that says it was replayed", err)
	}
	r.Work()
	r.Balanced(r.Sale, 3)
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	id := strange(r, "s=drop-1", "u=ann", "q=2")
	discard := func(actor, note string) error {
		_, err := r.Replayer(r.Redis, r.Store).Discard(r.Ctx(), id, actor, note)
		return err
	}
	pipelinetest.WantKind(t, discard("", ""), pipeline.KindInvalid)
	pipelinetest.WantKind(t, discard(strings.Repeat("x", 129), ""), pipeline.KindInvalid)
	pipelinetest.WantKind(t, discard("ann", strings.Repeat("x", 1001)), pipeline.KindInvalid)
	pipelinetest.WantKind(t, discard("ann", "a\x00b"), pipeline.KindInvalid)
	if err := discard("ann", "a test order"); err != nil {
		t.Fatal(err)
	}
	letter := letter(r, id)
	if letter.Resolution != deadletter.Discarded || letter.Note != "a test order" || letter.ResolvedAt.IsZero() {
		t.Errorf("got %+v, want it discarded", letter)
	}
	want := fmt.Sprintf(`ann discard drop-1 {"note": "a test order", "dead_letter": %d}`, id)
	if got := logged(r); got != want {
		t.Errorf("got log %s, want %s", got, want)
	}
	again(r, id, "discarded")
	_, err := r.Replayer(r.Redis, r.Store).Discard(r.Ctx(), 1_000_000, "ann", "")
	pipelinetest.WantKind(t, err, pipeline.KindNotFound)
}
