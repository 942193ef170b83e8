package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
)

func TestAnAcceptIsCompleteWhenItIsAnswered(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Admission: admission.Options{Durability: pipeline.DurabilityFsync}})
	p := r.Sale.PartitionOf("ann")
	before := r.SaleHash(p, r.Sale.ID)
	earliest := redisTime(r)
	decision, err := r.Try(pipeline.OrderRequest{
		UserID: "ann", Quantity: 3, IdempotencyKey: "key",
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	})
	if err != nil {
		t.Fatal(err)
	}
	latest := redisTime(r)

	got := decision.Receipt
	want := admission.Decision{
		Result: admission.Accepted,
		Receipt: admission.Receipt{
			SaleID: r.Sale.ID, OrderID: got.OrderID, Number: got.Number, Quantity: 3,
			Durability: pipeline.DurabilityFsync, AcceptedAt: got.AcceptedAt,
		},
		OpensAt: r.Sale.OpensAt.Truncate(time.Millisecond), ClosesAt: r.Sale.ClosesAt.Truncate(time.Millisecond),
		MaxQuantity: 10, Remaining: 97,
	}
	if decision != want {
		t.Errorf("got decision\n%+v, want\n%+v", decision, want)
	}
	if got.AcceptedAt.Before(earliest) || got.AcceptedAt.After(latest) {
		t.Errorf("accepted at %s, which is not between %s and %s by Redis' clock", got.AcceptedAt, earliest, latest)
	}

	after := maps.Clone(before)
	after["stock"], after["accepted"] = "97", "1"
	if hash := r.SaleHash(p, r.Sale.ID); !maps.Equal(hash, after) {
		t.Errorf("got sale %v, want %v", hash, after)
	}
	slot := r.Slots(r.Sale)["ann"]
	if len(slot.KeyHash) != 24 || len(slot.PayloadHash) != 24 {
		t.Errorf("got hashes %q and %q, want 96 bits each", slot.KeyHash, slot.PayloadHash)
	}
	wantSlot := lua.Slot{
		OrderID: got.OrderID, Quantity: 3, Number: got.Number, AcceptedMS: got.AcceptedAt.UnixMilli(), Sequence: 1,
		KeyHash: slot.KeyHash, PayloadHash: slot.PayloadHash,
	}
	if slots := r.Slots(r.Sale); !maps.Equal(slots, map[string]lua.Slot{"ann": wantSlot}) {
		t.Errorf("got slots %v, want ann with %v", slots, wantSlot)
	}
	events := r.Events(r.Sale)
	if len(events) != 1 {
		t.Fatalf("got %d events, want 1", len(events))
	}
	wantEvent := pipeline.Event{
		Partition: p, EntryID: events[0].EntryID, SaleID: r.Sale.ID, Sequence: 1, OrderID: got.OrderID, Number: got.Number,
		UserID: "ann", Quantity: 3, AcceptedAt: got.AcceptedAt,
		KeyHash: slot.KeyHash, TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
	if events[0] != wantEvent {
		t.Errorf("got event %+v, want %+v", events[0], wantEvent)
	}
}

// redisTime is Redis' clock, to the millisecond that it decides by.
func redisTime(r *pipelinetest.Rig) time.Time {
	r.Helper()
	now, err := r.Redis.Time(r.Ctx()).Result()
	if err != nil {
		r.Fatal(err)
	}
	return now.Truncate(time.Millisecond).UTC()
}

// Three API processes, 1,300 buyers at once, each with a second try in between: exactly 1,000 get one unit.
func TestTheBuyerAfterTheLastUnitGetsSoldOut(t *testing.T) {
	t.Parallel()
	const stock, buyers = 1000, 1300
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: stock, MaxQuantity: 1}})
	processes := []*admission.Controller{
		r.Admission, r.NewAdmission(r.Redis, admission.Options{}), r.NewAdmission(r.Redis, admission.Options{}),
	}
	type answer struct {
		admission.Decision
		err error
	}
	answers := make([]answer, 2*buyers)
	ctx := r.Ctx()
	pipelinetest.Together(len(answers), func(i int) {
		req := pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%d", i/2), Quantity: 1}
		answers[i].Decision, answers[i].err = processes[i%3].Admit(ctx, r.Sale, req)
	})

	codes := map[admission.Result]int{}
	accepted := map[string]string{} // order id → user
	numbers := map[int64]bool{}
	for i, a := range answers {
		if a.err != nil {
			t.Fatalf("request %d: %v", i, a.err)
		}
		codes[a.Result]++
		if a.Result == admission.Accepted {
			accepted[a.Receipt.OrderID] = fmt.Sprintf("buyer-%d", i/2)
			numbers[a.Receipt.Number] = true
		}
	}
	refused := codes[admission.SoldOut] + codes[admission.AlreadyOrdered]
	if codes[admission.Accepted] != stock || refused != len(answers)-stock || codes[admission.SoldOut] < 2*(buyers-stock) {
		t.Errorf("got %v", codes)
	}
	if len(accepted) != stock || len(numbers) != stock {
		t.Errorf("got %d order ids and %d numbers, want %d of each", len(accepted), len(numbers), stock)
	}
	slots := r.Slots(r.Sale)
	if left := r.Stock(r.Sale); left != 0 || len(slots) != stock {
		t.Errorf("got %d units left and %d slots, want 0 and %d", left, len(slots), stock)
	}
	events := r.Events(r.Sale)
	for i, e := range events {
		if e.Sequence != int64(i+1) || accepted[e.OrderID] != e.UserID || slots[e.UserID].OrderID != e.OrderID {
			t.Fatalf("event %d is %+v, answered as the order of %q, slot %+v", i, e, accepted[e.OrderID], slots[e.UserID])
		}
	}
	if len(events) != stock {
		t.Errorf("got %d events, want %d", len(events), stock)
	}
	for code, n := range codes {
		if got := r.Labelled("sluice_admissions_total", "result", string(code)); got != float64(n) {
			t.Errorf("the metric counts %v %s, want %d", got, code, n)
		}
	}
}

func TestTheSameBuyerAgain(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	first, err := r.Try(pipeline.OrderRequest{UserID: "ann", Quantity: 2, IdempotencyKey: "k1"})
	if err != nil || first.Result != admission.Accepted {
		t.Fatalf("got %v, %v", first.Result, err)
	}
	before := r.Dump(r.Sale)
	another := r.NewAdmission(r.Redis, admission.Options{}) // a retry may reach any API process
	for _, test := range []struct {
		name string
		req  pipeline.OrderRequest
		want admission.Result
	}{
		{"the same key", pipeline.OrderRequest{UserID: "ann", Quantity: 2, IdempotencyKey: "k1"}, admission.Replayed},
		{
			"the key with another quantity",
			pipeline.OrderRequest{UserID: "ann", Quantity: 1, IdempotencyKey: "k1"},
			admission.KeyReused,
		},
		{"another key", pipeline.OrderRequest{UserID: "ann", Quantity: 2, IdempotencyKey: "k2"}, admission.AlreadyOrdered},
		{"no key", pipeline.OrderRequest{UserID: "ann", Quantity: 2}, admission.AlreadyOrdered},
	} {
		for _, a := range []*admission.Controller{r.Admission, another} {
			got, err := a.Admit(r.Ctx(), r.Sale, test.req)
			if err != nil || got.Result != test.want {
				t.Errorf("%s: got %q, %v, want %q", test.name, got.Result, err, test.want)
			}
			if got.Receipt != first.Receipt {
				t.Errorf("%s: got receipt %+v, want the first one %+v", test.name, got.Receipt, first.Receipt)
			}
		}
	}
	if after := r.Dump(r.Sale); after != before {
		t.Errorf("Redis changed from\n%s to\n%s", before, after)
	}
	decision, err := r.Try(pipeline.OrderRequest{UserID: "bob", Quantity: 2, IdempotencyKey: "k1"})
	if err != nil || decision.Result != admission.Accepted {
		t.Errorf("another buyer's key is another key: got %q, %v", decision.Result, err)
	}
}

func TestASaleThatDoesNotSellNow(t *testing.T) {
	t.Parallel()
	hour := time.Hour
	active, paused, closed := pipeline.SaleActive, pipeline.SalePaused, pipeline.SaleClosed
	at := func(d time.Duration) *time.Time { when := time.Now().Add(d); return &when }
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{MaxQuantity: 4}})
	for _, step := range []struct {
		name     string
		change   pipeline.SaleChange
		quantity int
		want     admission.Result
	}{
		{"over the sale's limit", pipeline.SaleChange{}, 5, admission.OverLimit},
		{"paused", pipeline.SaleChange{State: &paused}, 1, admission.Paused},
		{"paused wins over the limit", pipeline.SaleChange{}, 5, admission.Paused},
		{
			"resumed, but not open yet",
			pipeline.SaleChange{State: &active, OpensAt: at(hour), ClosesAt: at(2 * hour)},
			1,
			admission.NotOpen,
		},
		{"over", pipeline.SaleChange{OpensAt: at(-2 * hour), ClosesAt: at(-hour)}, 1, admission.Closed},
		{
			"closed by an operator",
			pipeline.SaleChange{OpensAt: at(-hour), ClosesAt: at(hour), State: &closed},
			1,
			admission.Closed,
		},
	} {
		sale := r.Change(step.change)
		before := r.Dump(r.Sale)
		got, err := r.Try(pipeline.OrderRequest{UserID: "ann", Quantity: step.quantity})
		want := admission.Decision{
			Result: step.want, MaxQuantity: 4, Remaining: 100,
			OpensAt: sale.OpensAt.Truncate(time.Millisecond), ClosesAt: sale.ClosesAt.Truncate(time.Millisecond),
			Receipt: got.Receipt, // of no order
		}
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", step.name, got, err, want)
		}
		if got.Receipt.OrderID != "" || got.Receipt.Number != 0 {
			t.Errorf("%s: got a receipt %+v", step.name, got.Receipt)
		}
		if after := r.Dump(r.Sale); after != before {
			t.Errorf("%s: Redis changed from\n%s to\n%s", step.name, before, after)
		}
	}
}

// The process' own copy of the window, which may be a second old and is compared with another clock, decides nothing.
func TestTheWindowIsRedisOwn(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 1 << 20}})
	stale := *r.Sale
	stale.OpensAt, stale.ClosesAt = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	got, err := r.Admission.Admit(r.Ctx(), &stale, pipeline.OrderRequest{UserID: "ann", Quantity: 1})
	if err != nil || got.Result != admission.Accepted {
		t.Errorf("open in Redis: got %q, %v", got.Result, err)
	}

	// A busy machine may be too slow to see the whole of a short window; it gets longer ones until it does.
	want := []admission.Result{admission.NotOpen, admission.Accepted, admission.Closed}
	width, seen := 300*time.Millisecond, []admission.Result{}
	for ; width < pipelinetest.CallLimit && !slices.Equal(seen, want); width *= 4 {
		seen = watchWindow(r, width)
	}
	if !slices.Equal(seen, want) {
		t.Errorf("got %v, want %v", seen, want)
	}
}

// watchWindow sets the sale to open after a time, and to close after as much again. It expects every answer to be true
// at some moment between its request and its arrival, and returns the answers, each once.
func watchWindow(r *pipelinetest.Rig, width time.Duration) (seen []admission.Result) {
	r.Helper()
	opens := redisTime(r).Add(width)
	closes := opens.Add(width)
	window := pipeline.SaleChange{OpensAt: &opens, ClosesAt: &closes}
	if _, err := r.Publisher.Change(r.Ctx(), r.Sale.ID, "test", window); err != nil {
		r.Fatal(err)
	}
	buyer := 0
	testkit.Eventually(r.T, 3*pipelinetest.CallLimit, "the window to pass", func() bool {
		earliest := redisTime(r)
		got, err := r.Try(pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%s-%d", width, buyer), Quantity: 1})
		latest := redisTime(r)
		buyer++
		if err != nil {
			r.Fatal(err)
		}
		switch when := got.Receipt.AcceptedAt; got.Result {
		case admission.NotOpen:
			if !earliest.Before(opens) {
				r.Fatalf("not open at %s, opens at %s", earliest, opens)
			}
		case admission.Closed:
			if latest.Before(closes) {
				r.Fatalf("closed at %s, closes at %s", latest, closes)
			}
		default:
			if when.Before(opens) || !when.Before(closes) {
				r.Errorf("accepted at %s, the window is %s to %s", when, opens, closes)
			}
		}
		if len(seen) == 0 || seen[len(seen)-1] != got.Result {
			seen = append(seen, got.Result)
		}
		return got.Result == admission.Closed
	})
	return seen
}

func TestASaleThatIsNotInRedisIsNeverSoldOut(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	r.Admit("ann", 1)
	if err := r.Redis.Del(r.Ctx(), r.Keys.Sale(r.Sale.PartitionOf("ann"), r.Sale.ID)).Err(); err != nil {
		t.Fatal(err)
	}
	before := r.Dump(r.Sale)
	for _, user := range []string{"ann", "bob"} {
		decision, err := r.Try(pipeline.OrderRequest{UserID: user, Quantity: 1})
		pipelinetest.WantKind(t, err, pipeline.KindNotLoaded)
		if decision != (admission.Decision{}) {
			t.Errorf("%s: got a decision beside the error: %+v", user, decision)
		}
	}
	if after := r.Dump(r.Sale); after != before {
		t.Errorf("Redis changed from\n%s to\n%s", before, after)
	}
}

func TestEveryBuyerOfASpreadSaleHasOnePlace(t *testing.T) {
	t.Parallel()
	spread := pipeline.Sale{Total: 301, Partitions: []pipeline.Partition{3, 0, 2}}
	r := pipelinetest.New(t, pipelinetest.Options{Sale: spread})
	var shares []string
	for _, p := range spread.Partitions {
		shares = append(shares, r.SaleHash(p, r.Sale.ID)["stock"])
	}
	if !slices.Equal(shares, []string{"101", "100", "100"}) {
		t.Fatalf("got shares %v, want 301 units in all", shares)
	}
	receipts := r.AdmitMany("buyer", 90)
	used := map[pipeline.Partition]bool{}
	for i, receipt := range receipts {
		user := fmt.Sprintf("buyer-%d", i)
		used[r.Sale.PartitionOf(user)] = true
		again, err := r.Try(pipeline.OrderRequest{UserID: user, Quantity: 1})
		if err != nil || again.Result != admission.AlreadyOrdered || again.Receipt.OrderID != receipt.OrderID {
			t.Fatalf("%s again: got %q %s, %v, want %s", user, again.Result, again.Receipt.OrderID, err, receipt.OrderID)
		}
	}
	if len(used) != 3 || r.Stock(r.Sale) != 211 || len(r.Events(r.Sale)) != 90 {
		t.Errorf("got %d partitions used, %d units left, %d events, want 3, 211, 90",
			len(used), r.Stock(r.Sale), len(r.Events(r.Sale)))
	}
}

func TestRequestsThatNoSaleCouldAccept(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	before := r.Dump(r.Sale)
	for _, req := range []pipeline.OrderRequest{
		{UserID: "", Quantity: 1},
		{UserID: strings.Repeat("u", pipeline.MaxUserIDBytes+1), Quantity: 1},
		{UserID: "{p01}", Quantity: 1},
		{UserID: "a b", Quantity: 1},
		{UserID: "ann"},
		{UserID: "ann", Quantity: -1},
		{UserID: "ann", Quantity: pipeline.MaxQuantityLimit + 1},
		{UserID: "ann", Quantity: 1 << 31},
		{UserID: "ann", Quantity: 1, IdempotencyKey: strings.Repeat("k", pipeline.MaxIdempotencyKeyBytes+1)},
	} {
		_, err := r.Try(req)
		pipelinetest.WantKind(t, err, pipeline.KindInvalid)
	}
	if after := r.Dump(r.Sale); after != before {
		t.Errorf("Redis changed from\n%s to\n%s", before, after)
	}
	for _, req := range []pipeline.OrderRequest{
		{UserID: strings.Repeat("u", pipeline.MaxUserIDBytes), Quantity: 1},
		{UserID: "ünïcödé|@:*?[x]\"'\\", Quantity: 10, IdempotencyKey: strings.Repeat("k", pipeline.MaxIdempotencyKeyBytes)},
		{UserID: "-", Quantity: 1, IdempotencyKey: "a key\nof {any} kind\x00"},
	} {
		if got, err := r.Try(req); err != nil || got.Result != admission.Accepted {
			t.Errorf("%q: got %q, %v", req.UserID, got.Result, err)
		}
	}
}

// TestOneUnreadableSlotHarmsNobodyElse: a slot that none of our scripts wrote fails the request of its buyer, and no
// other request of the same batch.
func TestOneUnreadableSlotHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	slots := r.Keys.Buyers(r.Sale.Partitions[0], r.Sale.ID)
	if err := r.Redis.HSet(r.Ctx(), slots, "buyer-7", "nonsense").Err(); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 60)
	pipelinetest.Together(len(errs), func(i int) {
		_, errs[i] = r.Try(pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%d", i), Quantity: 1})
	})
	for i, err := range errs {
		if (err != nil) != (i == 7) {
			t.Errorf("buyer %d: got %v", i, err)
		}
	}
	pipelinetest.WantKind(t, errs[7], pipeline.KindUnavailable)
	if got := len(r.Events(r.Sale)); got != 59 {
		t.Errorf("got %d events, want 59", got)
	}
}
