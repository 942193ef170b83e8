package pipeline_test

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
)

func TestAnAcceptIsAllThereWhenItIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Admission: pipeline.AdmissionOptions{Durability: pipeline.DurabilityFsync}})
	p := r.sale.PartitionOf("ann")
	before := r.saleHash(p, r.sale.ID)
	earliest := r.redisTime()
	decision, err := r.try(pipeline.OrderRequest{
		UserID: "ann", Quantity: 3, IdempotencyKey: "key", TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	})
	if err != nil {
		t.Fatal(err)
	}
	latest := r.redisTime()

	got := decision.Receipt
	want := pipeline.Decision{
		Result: pipeline.AdmissionAccepted,
		Receipt: pipeline.Receipt{
			SaleID: r.sale.ID, OrderID: got.OrderID, Number: got.Number, Quantity: 3,
			Durability: pipeline.DurabilityFsync, AcceptedAt: got.AcceptedAt,
		},
		OpensAt: r.sale.OpensAt.Truncate(time.Millisecond), ClosesAt: r.sale.ClosesAt.Truncate(time.Millisecond),
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
	if hash := r.saleHash(p, r.sale.ID); !maps.Equal(hash, after) {
		t.Errorf("got sale %v, want %v", hash, after)
	}
	slot := r.slots(r.sale)["ann"]
	if len(slot.KeyHash) != 24 || len(slot.PayloadHash) != 24 {
		t.Errorf("got hashes %q and %q, want 96 bits each", slot.KeyHash, slot.PayloadHash)
	}
	wantSlot := lua.Slot{
		OrderID: got.OrderID, Quantity: 3, Number: got.Number, AcceptedMS: got.AcceptedAt.UnixMilli(), Sequence: 1,
		KeyHash: slot.KeyHash, PayloadHash: slot.PayloadHash,
	}
	if slots := r.slots(r.sale); !maps.Equal(slots, map[string]lua.Slot{"ann": wantSlot}) {
		t.Errorf("got slots %v, want ann with %v", slots, wantSlot)
	}
	events := r.events(r.sale)
	if len(events) != 1 {
		t.Fatalf("got %d events, want 1", len(events))
	}
	wantEvent := pipeline.Event{
		Partition: p, EntryID: events[0].EntryID, SaleID: r.sale.ID, Sequence: 1, OrderID: got.OrderID, Number: got.Number,
		UserID: "ann", Quantity: 3, AcceptedAt: got.AcceptedAt,
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
	if events[0] != wantEvent {
		t.Errorf("got event %+v, want %+v", events[0], wantEvent)
	}
}

// redisTime is Redis' clock, to the millisecond that it decides by.
func (r *rig) redisTime() time.Time {
	r.Helper()
	now, err := r.rdb.Time(r.ctx()).Result()
	if err != nil {
		r.Fatal(err)
	}
	return now.Truncate(time.Millisecond).UTC()
}

// Three API processes, 1,300 buyers at once, each with a second try in between: exactly 1,000 get one unit.
func TestTheBuyerAfterTheLastUnitIsToldSoldOut(t *testing.T) {
	t.Parallel()
	const stock, buyers = 1000, 1300
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: stock, MaxQuantity: 1}})
	processes := []*pipeline.Admission{r.admission, r.newAdmission(r.rdb, pipeline.AdmissionOptions{}), r.newAdmission(r.rdb, pipeline.AdmissionOptions{})}
	type answer struct {
		pipeline.Decision
		err error
	}
	answers := make([]answer, 2*buyers)
	ctx := r.ctx()
	together(len(answers), func(i int) {
		req := pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%d", i/2), Quantity: 1}
		answers[i].Decision, answers[i].err = processes[i%3].Admit(ctx, r.sale, req)
	})

	codes := map[pipeline.AdmissionResult]int{}
	accepted := map[string]string{} // order id → user
	numbers := map[int64]bool{}
	for i, a := range answers {
		if a.err != nil {
			t.Fatalf("request %d: %v", i, a.err)
		}
		codes[a.Result]++
		if a.Result == pipeline.AdmissionAccepted {
			accepted[a.Receipt.OrderID] = fmt.Sprintf("buyer-%d", i/2)
			numbers[a.Receipt.Number] = true
		}
	}
	if codes[pipeline.AdmissionAccepted] != stock || codes[pipeline.AdmissionSoldOut]+codes[pipeline.AdmissionAlreadyOrdered] != len(answers)-stock || codes[pipeline.AdmissionSoldOut] < 2*(buyers-stock) {
		t.Errorf("got %v", codes)
	}
	if len(accepted) != stock || len(numbers) != stock {
		t.Errorf("got %d order ids and %d numbers, want %d of each", len(accepted), len(numbers), stock)
	}
	slots := r.slots(r.sale)
	if left := r.stock(r.sale); left != 0 || len(slots) != stock {
		t.Errorf("got %d units left and %d buyers marked, want 0 and %d", left, len(slots), stock)
	}
	events := r.events(r.sale)
	for i, e := range events {
		if e.Sequence != int64(i+1) || accepted[e.OrderID] != e.UserID || slots[e.UserID].OrderID != e.OrderID {
			t.Fatalf("event %d is %+v, told as the order of %q, slot %+v", i, e, accepted[e.OrderID], slots[e.UserID])
		}
	}
	if len(events) != stock {
		t.Errorf("got %d events, want %d", len(events), stock)
	}
	for code, n := range codes {
		if got := r.labelled("sluice_admissions_total", "result", string(code)); got != float64(n) {
			t.Errorf("the metric counts %v %s, want %d", got, code, n)
		}
	}
}

func TestTheSameBuyerAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	first, err := r.try(pipeline.OrderRequest{UserID: "ann", Quantity: 2, IdempotencyKey: "k1"})
	if err != nil || first.Result != pipeline.AdmissionAccepted {
		t.Fatalf("got %v, %v", first.Result, err)
	}
	before := r.dump(r.sale)
	another := r.newAdmission(r.rdb, pipeline.AdmissionOptions{}) // a retry may reach any API process
	for _, test := range []struct {
		name string
		req  pipeline.OrderRequest
		want pipeline.AdmissionResult
	}{
		{"the same key", pipeline.OrderRequest{UserID: "ann", Quantity: 2, IdempotencyKey: "k1"}, pipeline.AdmissionReplayed},
		{"the key with another quantity", pipeline.OrderRequest{UserID: "ann", Quantity: 1, IdempotencyKey: "k1"}, pipeline.AdmissionKeyReused},
		{"another key", pipeline.OrderRequest{UserID: "ann", Quantity: 2, IdempotencyKey: "k2"}, pipeline.AdmissionAlreadyOrdered},
		{"no key", pipeline.OrderRequest{UserID: "ann", Quantity: 2}, pipeline.AdmissionAlreadyOrdered},
	} {
		for _, a := range []*pipeline.Admission{r.admission, another} {
			got, err := a.Admit(r.ctx(), r.sale, test.req)
			if err != nil || got.Result != test.want {
				t.Errorf("%s: got %q, %v, want %q", test.name, got.Result, err, test.want)
			}
			if got.Receipt != first.Receipt {
				t.Errorf("%s: got receipt %+v, want the first one %+v", test.name, got.Receipt, first.Receipt)
			}
		}
	}
	if after := r.dump(r.sale); after != before {
		t.Errorf("Redis changed from\n%s to\n%s", before, after)
	}
	decision, err := r.try(pipeline.OrderRequest{UserID: "bob", Quantity: 2, IdempotencyKey: "k1"})
	if err != nil || decision.Result != pipeline.AdmissionAccepted {
		t.Errorf("another buyer's key is another key: got %q, %v", decision.Result, err)
	}
}

func TestASaleThatDoesNotSellNow(t *testing.T) {
	t.Parallel()
	hour := time.Hour
	active, paused, closed := pipeline.SaleActive, pipeline.SalePaused, pipeline.SaleClosed
	at := func(d time.Duration) *time.Time { when := time.Now().Add(d); return &when }
	r := newRig(t, rigOptions{Sale: pipeline.Sale{MaxQuantity: 4}})
	for _, step := range []struct {
		name     string
		change   pipeline.SaleChange
		quantity int
		want     pipeline.AdmissionResult
	}{
		{"over the sale's limit", pipeline.SaleChange{}, 5, pipeline.AdmissionOverLimit},
		{"paused", pipeline.SaleChange{State: &paused}, 1, pipeline.AdmissionPaused},
		{"paused wins over the limit", pipeline.SaleChange{}, 5, pipeline.AdmissionPaused},
		{"resumed, but not open yet", pipeline.SaleChange{State: &active, OpensAt: at(hour), ClosesAt: at(2 * hour)}, 1, pipeline.AdmissionNotOpen},
		{"over", pipeline.SaleChange{OpensAt: at(-2 * hour), ClosesAt: at(-hour)}, 1, pipeline.AdmissionClosed},
		{"closed by an operator", pipeline.SaleChange{OpensAt: at(-hour), ClosesAt: at(hour), State: &closed}, 1, pipeline.AdmissionClosed},
	} {
		sale, err := r.publisher.Change(r.ctx(), r.sale.ID, "test", step.change)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		before := r.dump(r.sale)
		got, err := r.try(pipeline.OrderRequest{UserID: "ann", Quantity: step.quantity})
		want := pipeline.Decision{
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
		if after := r.dump(r.sale); after != before {
			t.Errorf("%s: Redis changed from\n%s to\n%s", step.name, before, after)
		}
	}
}

// The process' own idea of the window, which may be a second old and goes by another clock, decides nothing.
func TestTheWindowIsRedisOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 1 << 20}})
	stale := *r.sale
	stale.OpensAt, stale.ClosesAt = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	if got, err := r.admission.Admit(r.ctx(), &stale, pipeline.OrderRequest{UserID: "ann", Quantity: 1}); err != nil || got.Result != pipeline.AdmissionAccepted {
		t.Errorf("open in Redis: got %q, %v", got.Result, err)
	}

	// A busy machine may be too slow to see the whole of a short window; it gets longer ones until it does.
	want := []pipeline.AdmissionResult{pipeline.AdmissionNotOpen, pipeline.AdmissionAccepted, pipeline.AdmissionClosed}
	width, seen := 300*time.Millisecond, []pipeline.AdmissionResult{}
	for ; width < callLimit && !slices.Equal(seen, want); width *= 4 {
		seen = r.watchWindow(width)
	}
	if !slices.Equal(seen, want) {
		t.Errorf("got %v, want %v", seen, want)
	}
}

// watchWindow has the sale open after a time, and close after as much again. It expects every answer to be true at some
// moment between its request and its arrival, and returns the answers, each once.
func (r *rig) watchWindow(width time.Duration) (seen []pipeline.AdmissionResult) {
	r.Helper()
	opens := r.redisTime().Add(width)
	closes := opens.Add(width)
	if _, err := r.publisher.Change(r.ctx(), r.sale.ID, "test", pipeline.SaleChange{OpensAt: &opens, ClosesAt: &closes}); err != nil {
		r.Fatal(err)
	}
	buyer := 0
	testkit.Eventually(r.T, 3*callLimit, "the window to pass", func() bool {
		earliest := r.redisTime()
		got, err := r.try(pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%s-%d", width, buyer), Quantity: 1})
		latest := r.redisTime()
		buyer++
		if err != nil {
			r.Fatal(err)
		}
		switch when := got.Receipt.AcceptedAt; got.Result {
		case pipeline.AdmissionNotOpen:
			if !earliest.Before(opens) {
				r.Fatalf("not open at %s, opens at %s", earliest, opens)
			}
		case pipeline.AdmissionClosed:
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
		return got.Result == pipeline.AdmissionClosed
	})
	return seen
}

func TestASaleThatRedisDoesNotHoldIsNeverSoldOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.admit("ann", 1)
	if err := r.rdb.Del(r.ctx(), r.keys.Sale(r.sale.PartitionOf("ann"), r.sale.ID)).Err(); err != nil {
		t.Fatal(err)
	}
	before := r.dump(r.sale)
	for _, user := range []string{"ann", "bob"} {
		decision, err := r.try(pipeline.OrderRequest{UserID: user, Quantity: 1})
		wantKind(t, err, pipeline.KindNotLoaded)
		if decision != (pipeline.Decision{}) {
			t.Errorf("%s: got a decision beside the error: %+v", user, decision)
		}
	}
	if after := r.dump(r.sale); after != before {
		t.Errorf("Redis changed from\n%s to\n%s", before, after)
	}
}

func TestEveryBuyerOfASpreadSaleHasOnePlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 301, Partitions: []pipeline.Partition{3, 0, 2}}})
	if got := []string{r.saleHash(3, r.sale.ID)["stock"], r.saleHash(0, r.sale.ID)["stock"], r.saleHash(2, r.sale.ID)["stock"]}; !slices.Equal(got, []string{"101", "100", "100"}) {
		t.Fatalf("got shares %v, want 301 units in all", got)
	}
	receipts := r.admitMany("buyer", 90)
	used := map[pipeline.Partition]bool{}
	for i, receipt := range receipts {
		user := fmt.Sprintf("buyer-%d", i)
		used[r.sale.PartitionOf(user)] = true
		again, err := r.try(pipeline.OrderRequest{UserID: user, Quantity: 1})
		if err != nil || again.Result != pipeline.AdmissionAlreadyOrdered || again.Receipt.OrderID != receipt.OrderID {
			t.Fatalf("%s again: got %q %s, %v, want %s", user, again.Result, again.Receipt.OrderID, err, receipt.OrderID)
		}
	}
	if len(used) != 3 || r.stock(r.sale) != 211 || len(r.events(r.sale)) != 90 {
		t.Errorf("got %d partitions used, %d units left, %d events, want 3, 211, 90", len(used), r.stock(r.sale), len(r.events(r.sale)))
	}
}

func TestRequestsThatNoSaleCouldAccept(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	before := r.dump(r.sale)
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
		_, err := r.try(req)
		wantKind(t, err, pipeline.KindInvalid)
	}
	if after := r.dump(r.sale); after != before {
		t.Errorf("Redis changed from\n%s to\n%s", before, after)
	}
	for _, req := range []pipeline.OrderRequest{
		{UserID: strings.Repeat("u", pipeline.MaxUserIDBytes), Quantity: 1},
		{UserID: "ünïcödé|@:*?[x]\"'\\", Quantity: 10, IdempotencyKey: strings.Repeat("k", pipeline.MaxIdempotencyKeyBytes)},
		{UserID: "-", Quantity: 1, IdempotencyKey: "a key\nof {any} kind\x00"},
	} {
		if got, err := r.try(req); err != nil || got.Result != pipeline.AdmissionAccepted {
			t.Errorf("%q: got %q, %v", req.UserID, got.Result, err)
		}
	}
}

// TestOneUnreadableSlotHarmsNobodyElse: a slot that none of our scripts wrote spoils the request of its buyer, and of nobody
// who happens to be in the same batch.
func TestOneUnreadableSlotHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	if err := r.rdb.HSet(r.ctx(), r.keys.Buyers(r.sale.Partitions[0], r.sale.ID), "buyer-7", "nonsense").Err(); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 60)
	together(len(errs), func(i int) {
		_, errs[i] = r.try(pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%d", i), Quantity: 1})
	})
	for i, err := range errs {
		if (err != nil) != (i == 7) {
			t.Errorf("buyer %d: got %v", i, err)
		}
	}
	wantKind(t, errs[7], pipeline.KindUnavailable)
	if got := len(r.events(r.sale)); got != 59 {
		t.Errorf("got %d events, want 59", got)
	}
}
