package pipeline_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
)

// startServing starts a worker that expires, gives back and hands over.
func (r *rig) startServing() {
	r.Helper()
	releaser := r.releaser()
	r.startWorker(r.store, pipeline.WorkerOptions{},
		pipeline.NewExpirer(r.store, r.notifier(), r.metrics.Lifecycle, r.log).Job(),
		releaser.Job(), r.handOver().Job(r.catalogue()))
}

// servedInTurn holds the orders in Postgres to the tickets: the accept counter must grow with them, with no inversion.
func (r *rig) servedInTurn(want int) {
	r.Helper()
	rows, err := r.raw.Query(r.ctx(), `select w.ticket, o.sequence, w.left_at is not null from waitlist w
		join orders o on o.sale_id = w.sale_id and o.id = w.order_id order by w.ticket`)
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	served, inversions := 0, 0
	var last int64
	for rows.Next() {
		var ticket, sequence int64
		var left bool
		if err := rows.Scan(&ticket, &sequence, &left); err != nil {
			r.Fatal(err)
		}
		if left {
			r.Errorf("ticket %d was told that he has left, and got an order", ticket)
		}
		if sequence < last {
			inversions++
		}
		last = max(last, sequence)
		served++
	}
	if served != want || inversions != 0 {
		r.Errorf("%d served, %d inversions; want %d, 0", served, inversions, want)
	}
}

// TestUnpaidUnitsGoToWhoWaits is the whole story: sold out, people wait, orders expire unpaid, and their units go to the
// waiting, in turn, round after round, until nobody waits.
func TestUnpaidUnitsGoToWhoWaits(t *testing.T) {
	t.Parallel()
	const units, people = 10, 35
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: units, PaymentWindow: 2 * time.Second, Waitlist: 1000}})
	r.admitMany("first", units)
	w := r.waitlist()
	for n := range people {
		if d := r.joins(w, fmt.Sprint("waits-", n), 1); d.Position != int64(n+1) {
			t.Errorf("position of %d: got %d", n, d.Position)
		}
	}
	r.balanced(r.sale, 0)
	r.startServing()
	testkit.Eventually(t, settleLimit, "everybody was served", func() bool { return len(r.queue()) == 0 })
	testkit.Eventually(t, settleLimit, "everything has expired", func() bool { return r.stock(r.sale) == units })
	r.settled()
	r.servedInTurn(people)
	r.balanced(r.sale, 0)
	testkit.Eventually(t, settleLimit, "all that was handed over is counted", func() bool {
		return r.count("sluice_waitlist_handovers_total") >= people
	})
	if got := r.count("sluice_waitlist_handovers_total"); got != people {
		t.Errorf("handed over: got %v, want %d", got, people)
	}
	if got := r.count("sluice_waitlist_dropped_total"); got != 0 {
		t.Errorf("dropped: got %v", got)
	}
}

// TestWaitlistSurvivesEverything: people join, leave and cancel while Redis loses all it has, twice. Whoever was told that he
// waits keeps his place, whoever was told that he has left gets nothing, and all are served in the order of their tickets
// as they stood when Redis was lost.
func TestWaitlistSurvivesEverything(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	const units, people, sides = 5, 120, 4
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: units, Waitlist: 1000, PaymentWindow: time.Hour}})
	r.verifies()
	r.admitMany("first", units)
	r.persist(r.events(r.sale)...)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	told, left := map[string]int64{}, map[string]bool{}
	var joined atomic.Int64
	var going sync.WaitGroup
	for side := range sides {
		random := rand.New(rand.NewPCG(seed, uint64(side)))
		w := r.waitlist() // an api of its own
		going.Go(func() {
			for n := side; n < people; n += sides {
				user := fmt.Sprint("waits-", n)
				d := r.insist(func(ctx context.Context) (pipeline.WaitDecision, error) {
					return w.Join(ctx, r.sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
				})
				mu.Lock()
				told[user] = d.Stay.Ticket
				mu.Unlock()
				joined.Add(1)
				if random.IntN(4) == 0 {
					for {
						_, err := w.Leave(r.ctx(), r.sale, user)
						if err == nil || pipeline.KindOf(err) == pipeline.KindNotFound { // an earlier try did it
							break
						}
						time.Sleep(10 * time.Millisecond)
					}
					mu.Lock()
					left[user] = true
					mu.Unlock()
				}
			}
		})
	}
	for _, at := range []int64{people / 4, people / 2} {
		testkit.Eventually(t, settleLimit, "people join", func() bool { return joined.Load() >= at || t.Failed() })
		r.flush()
	}
	going.Wait()
	testkit.Eventually(t, settleLimit, "Redis is verified", r.trusted)
	r.flush() // once more, with nothing under way
	testkit.Eventually(t, settleLimit, "Redis is verified again", func() bool { return r.trusted() && len(r.queue()) > 0 })
	queue := r.queue()
	if len(queue) != people-len(left) {
		t.Errorf("%d wait, want %d", len(queue), people-len(left))
	}
	var last int64
	for _, user := range queue {
		if left[user] || told[user] <= last {
			t.Errorf("%s waits with ticket %d after %d; left: %t", user, told[user], last, left[user])
		}
		last = told[user]
	}
	r.balanced(r.sale, units)

	// Then they are served, one cancelled order at a time.
	r.startServing()
	for n := range units {
		r.exec(1, `update orders set pay_by = now() - interval '1 s' where user_id = $1`, fmt.Sprint("first-", n))
	}
	testkit.Eventually(t, settleLimit, "units are handed over", func() bool { return len(r.queue()) == len(queue)-units })
	r.settled()
	r.servedInTurn(units)
	r.balanced(r.sale, units)
	slots := r.slots(r.sale)
	for _, user := range queue[:units] {
		if _, holds := slots[user]; !holds {
			t.Errorf("%s was first in the list and holds no order", user)
		}
	}
}

// insist asks until the stores answer.
func (r *rig) insist(ask func(context.Context) (pipeline.WaitDecision, error)) pipeline.WaitDecision {
	for {
		d, err := ask(r.ctx())
		switch {
		case err == nil && d.Result != pipeline.WaitJoined:
			r.Errorf("join: got %+v", d)
			return d
		case err == nil:
			return d
		case pipeline.KindOf(err) != pipeline.KindNotLoaded && pipeline.KindOf(err) != pipeline.KindUnavailable, r.ctx().Err() != nil:
			r.Errorf("join: %v", err)
			return d
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestAHandedOverOrderThatRedisLost: the order had no row yet and nobody has its event in hand. The person waits again, in
// the same place, and gets the unit again, under the same order id.
func TestAHandedOverOrderThatRedisLost(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1, Waitlist: 10}})
	r.admit("first", 1)
	r.persist(r.events(r.sale)...)
	w := r.waitlist()
	ann, bob := r.joins(w, "ann", 1), r.joins(w, "bob", 1)
	first := r.slots(r.sale)["first"]
	r.endOrder(first.OrderID)
	if err := r.releaser().Apply(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := r.slots(r.sale)["ann"].OrderID; got != ann.Stay.OrderID {
		t.Fatalf("ann's order: got %q, want %q", got, ann.Stay.OrderID)
	}
	if mine, err := w.Mine(r.ctx(), r.sale, "ann"); err != nil || !mine.Ordered || mine.Stay.OrderID != ann.Stay.OrderID {
		t.Fatalf("ann: %+v, %v", mine, err)
	}
	r.flush()
	if _, err := w.Mine(r.ctx(), r.sale, "ann"); pipeline.KindOf(err) != pipeline.KindUnavailable {
		t.Errorf("ann while nothing is verified: got %v", err)
	}
	r.ensure()
	if got := r.queue(); !slices.Equal(got, []string{"ann", "bob"}) || r.stock(r.sale) != 1 {
		t.Fatalf("who waits: got %v, stock %d", got, r.stock(r.sale))
	}
	if got := r.rebuilds(); len(got) != 1 || got[0].Waiting != 2 {
		t.Errorf("rebuilds: %+v", got)
	}
	if d, err := r.try(pipeline.OrderRequest{UserID: "new", Quantity: 1}); err != nil || d.Result != pipeline.AdmissionSoldOut {
		t.Errorf("a newcomer before the unit is handed over: %s, %v", d.Result, err)
	}
	job := r.handOver().Job(r.catalogue())
	for range 2 {
		if err := job.Run(r.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.slots(r.sale)["ann"].OrderID; got != ann.Stay.OrderID || !slices.Equal(r.queue(), []string{"bob"}) {
		t.Fatalf("ann's order: got %q, want %q; who waits: %v", got, ann.Stay.OrderID, r.queue())
	}
	if d := r.joins(w, "cy", 1); d.Stay.Ticket <= bob.Stay.Ticket {
		t.Errorf("cy's ticket: got %d, after %d", d.Stay.Ticket, bob.Stay.Ticket)
	}
	r.persist(r.events(r.sale)...)
	r.balanced(r.sale, 1)
}

// TestAHandedOverOrderThatAWorkerHolds: Redis has lost it, and its buyer waits again, when the worker that has the event in
// hand shows it. It stands, before everybody who waits, and its buyer waits no longer.
func TestAHandedOverOrderThatAWorkerHolds(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1, Waitlist: 10}})
	r.admit("first", 1)
	r.persist(r.events(r.sale)...)
	w := r.waitlist()
	r.joins(w, "ann", 1)
	r.joins(w, "bob", 1)
	r.endOrder(r.slots(r.sale)["first"].OrderID)
	if err := r.releaser().Apply(r.ctx()); err != nil {
		t.Fatal(err)
	}
	event := r.events(r.sale)[0]
	r.flush()
	r.ensure()
	reply, err := lua.AdmitAgain(r.ctx(), r.rdb, r.admitKeys(), r.sale.ID, []lua.AdmitRequest{{
		OrderID: event.OrderID, Number: event.Number, UserID: event.UserID, Quantity: event.Quantity,
	}})
	if err != nil || reply.Outcomes[0].Code != lua.AdmitAccepted {
		t.Fatalf("shown again: %+v, %v", reply, err)
	}
	if got := r.queue(); !slices.Equal(got, []string{"bob"}) {
		t.Errorf("who waits: got %v", got)
	}
	r.persist(r.events(r.sale)...)
	r.balanced(r.sale, 1)
}

func (r *rig) admitKeys() lua.AdmitKeys {
	p := r.sale.Partitions[0]
	k := r.releaseKeys(p, r.sale.ID)
	return lua.AdmitKeys{Sale: k.Sale, Buyers: k.Buyers, Orders: k.Orders, Trusted: k.Trusted, Waitlist: k.Waitlist, Waiting: k.Waiting}
}

// endOrder expires an order in Postgres.
func (r *rig) endOrder(orderID string) {
	r.Helper()
	if _, changed, err := r.store.CancelOrder(r.ctx(), r.sale.ID, orderID, "first"); err != nil || !changed {
		r.Fatalf("end the order: %t, %v", changed, err)
	}
}

// TestJoinsAndLeavesAtEachPointOfDeath: whichever of the two stores has it and the other has not, repeating the request, or
// a rebuild, ends in what was told or will be.
func TestJoinsAndLeavesAtEachPointOfDeath(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1, Waitlist: 10}})
	r.admit("first", 1)
	r.persist(r.events(r.sale)...)
	w := r.waitlist()

	// Redis has it, Postgres has not: the buyer was not told. Asking again gives the same stay.
	r.joins(w, "ann", 1)
	r.exec(1, `delete from waitlist where user_id = 'ann'`)
	if d := r.joins(w, "ann", 1); d.Stay.Ticket != 1 {
		t.Errorf("ann again: ticket %d", d.Stay.Ticket)
	}
	r.exec(1, `delete from waitlist where user_id = 'ann'`)
	r.flush()
	r.ensure()
	if got := r.queue(); len(got) != 0 {
		t.Errorf("who was not told waits: %v", got)
	}

	// A leave of which Postgres knows nothing: the buyer was not told, and waits again after a loss; asking again ends it.
	r.joins(w, "bob", 1)
	r.joins(w, "cy", 1)
	mine, err := w.Mine(r.ctx(), r.sale, "bob")
	if err != nil {
		t.Fatal(err)
	}
	p := r.sale.PartitionOf("bob")
	code, _, _, err := lua.Leave(r.ctx(), r.rdb, r.releaseKeys(p, r.sale.ID), r.sale.ID, 1000, lua.ReleaseItem{UserID: "bob", OrderID: mine.Stay.OrderID})
	if err != nil || code != lua.LeaveLeft {
		t.Fatalf("leave: %s, %v", code, err)
	}
	if _, err := w.Leave(r.ctx(), r.sale, "bob"); err != nil {
		t.Errorf("leave again: %v", err)
	}
	_, err = w.Leave(r.ctx(), r.sale, "bob")
	wantKind(t, err, pipeline.KindNotFound)
	r.flush()
	r.ensure()
	if got := r.queue(); !slices.Equal(got, []string{"cy"}) {
		t.Errorf("who waits: got %v, want cy", got)
	}

	// A Redis that is older than the leave, under the same process: the ticket tells.
	list, waiting := r.keys.Waitlist(p, r.sale.ID), r.keys.Waiting(p, r.sale.ID)
	var saved []string
	for _, key := range []string{r.keys.Sale(p, r.sale.ID), list, waiting} {
		saved = append(saved, key, r.rdb.Dump(r.ctx(), key).Val())
	}
	if _, err := w.Leave(r.ctx(), r.sale, "cy"); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(saved); i += 2 {
		if err := r.rdb.RestoreReplace(r.ctx(), saved[i], 0, saved[i+1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	verifier := pipeline.NewVerifier(r.verifierConfig())
	if err := verifier.Job().Run(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := r.queue(); len(got) != 0 {
		t.Errorf("who has left waits again: %v", got)
	}
	if got := r.rebuilds(); got[len(got)-1].Reason != "waitlist" {
		t.Errorf("rebuilds: %+v", got)
	}
	r.balanced(r.sale, 1)
}

// TestLeavesRaceWithHandOvers: each person either has left or has an order, and was told which.
func TestLeavesRaceWithHandOvers(t *testing.T) {
	t.Parallel()
	const people = 40
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: people, MaxQuantity: people, Waitlist: 100}})
	r.admit("first", people)
	r.persist(r.events(r.sale)...)
	w := r.waitlist()
	for n := range people {
		r.joins(w, fmt.Sprint("waits-", n), 1)
	}
	r.endOrder(r.slots(r.sale)["first"].OrderID)
	left := make([]bool, people)
	together(people+1, func(i int) {
		if i == people {
			if err := r.releaser().Apply(r.ctx()); err != nil {
				t.Error(err)
			}
			return
		}
		got, err := w.Leave(r.ctx(), r.sale, fmt.Sprint("waits-", i))
		left[i] = err == nil
		if err != nil && (pipeline.KindOf(err) != pipeline.KindConflict || got.Stay.OrderID == "") {
			t.Errorf("leave: %+v, %v", got, err)
		}
	})
	slots := r.slots(r.sale)
	orders := 0
	for n := range people {
		_, holds := slots[fmt.Sprint("waits-", n)]
		if holds == left[n] {
			t.Errorf("%d: left %t, holds an order %t", n, left[n], holds)
		}
		if holds {
			orders++
		}
	}
	t.Logf("%d of %d have left", people-orders, people)
	r.persist(r.events(r.sale)...)
	r.balanced(r.sale, int64(orders))
}

// TestDoubleJoining: one buyer, many requests at once through several apis, one place.
func TestDoubleJoining(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 1, Waitlist: 3}})
	r.admit("first", 1)
	apis := []*pipeline.Waitlist{r.waitlist(), r.waitlist(), r.waitlist()}
	stays := make([]pipeline.Stay, 30)
	together(len(stays), func(i int) {
		d, err := apis[i%3].Join(r.ctx(), r.sale, pipeline.OrderRequest{UserID: "ann", Quantity: 1})
		if err != nil || d.Result != pipeline.WaitJoined || d.Position != 1 {
			t.Errorf("join: %+v, %v", d, err)
		}
		stays[i] = d.Stay
	})
	for _, s := range stays {
		if s != stays[0] {
			t.Errorf("got %+v and %+v", s, stays[0])
		}
	}
	r.exec(1, `update waitlist set number = number`) // one row
	codes := map[pipeline.WaitResult]int{}
	var mu sync.Mutex
	together(20, func(i int) {
		d, err := apis[i%3].Join(r.ctx(), r.sale, pipeline.OrderRequest{UserID: fmt.Sprint("waits-", i), Quantity: 1})
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		codes[d.Result]++
		mu.Unlock()
	})
	if codes[pipeline.WaitJoined] != 2 || codes[pipeline.WaitFull] != 18 {
		t.Errorf("the limit of 3: got %v", codes)
	}
	if n, err := apis[0].People(r.ctx(), r.sale); err != nil || n != 3 {
		t.Errorf("people: %d, %v", n, err)
	}
}

// TestNobodyIsServedAfterTheEnd: what comes free after the sale is over stays in stock; who waits can still leave.
func TestNobodyIsServedAfterTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 1, Waitlist: 3}})
	r.admit("first", 1)
	r.persist(r.events(r.sale)...)
	w := r.waitlist()
	r.joins(w, "ann", 1)
	closed := pipeline.SaleClosed
	sale, err := r.publisher.Change(r.ctx(), r.sale.ID, "test", pipeline.SaleChange{State: &closed})
	if err != nil {
		t.Fatal(err)
	}
	r.endOrder(r.slots(r.sale)["first"].OrderID)
	if err := r.releaser().Apply(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if err := r.handOver().Job(r.catalogue()).Run(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if r.stock(sale) != 1 || len(r.events(sale)) != 0 {
		t.Errorf("stock %d, events %v", r.stock(sale), r.events(sale))
	}
	if mine, err := w.Mine(r.ctx(), sale, "ann"); err != nil || mine.Position != 1 {
		t.Errorf("ann: %+v, %v", mine, err)
	}
	if _, err := w.Leave(r.ctx(), sale, "ann"); err != nil {
		t.Error(err)
	}
	r.balanced(sale, 0)
}

// TestARestockServesWhoWaits: through the publisher, and counted.
func TestARestockServesWhoWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 1, Waitlist: 500}})
	r.admit("first", 1)
	w := r.waitlist()
	const people = lua.MaxHandOver + 20
	for n := range people {
		r.joins(w, fmt.Sprint("waits-", n), 1)
	}
	if _, err := r.publisher.Count(r.metrics.Notification).Change(r.ctx(), r.sale.ID, "test", pipeline.SaleChange{AddStock: people}); err != nil {
		t.Fatal(err)
	}
	if got := r.count("sluice_waitlist_handovers_total"); got != lua.MaxHandOver {
		t.Errorf("by the restock: got %v, want %d", got, lua.MaxHandOver)
	}
	if err := r.handOver().Job(r.catalogue()).Run(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.persist(r.events(r.sale)...)
	r.servedInTurn(people)
	r.balanced(r.stored(r.sale.ID), people+1)
}

// TestTheAuditSeesABrokenWaitlist: somebody who waits and holds an order, and a list that is not what is counted.
func TestTheAuditSeesABrokenWaitlist(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 2, Waitlist: 5}})
	r.admit("first", 2)
	w := r.waitlist()
	ann := r.joins(w, "ann", 1)
	p := r.sale.Partitions[0]
	entry := r.hash(r.keys.Waiting(p, r.sale.ID))["ann"]
	finds := func(want string) {
		t.Helper()
		report, err := r.auditor.Audit(r.ctx(), r.sale)
		if err != nil || !strings.Contains(strings.Join(report.Findings, "; "), want) {
			t.Errorf("audit: got %+v, %v, want %q", report, err, want)
		}
	}
	r.rdb.HDel(r.ctx(), r.keys.Waiting(p, r.sale.ID), "ann")
	finds("1 people wait, the sale counts 1 and Redis holds 0 entries")
	r.rdb.HSet(r.ctx(), r.keys.Waiting(p, r.sale.ID), "ann", entry, "first", entry)
	r.rdb.ZAdd(r.ctx(), r.keys.Waitlist(p, r.sale.ID), redis.Z{Score: float64(ann.Stay.Ticket + 1), Member: "first"})
	r.rdb.HSet(r.ctx(), r.keys.Sale(p, r.sale.ID), "waiting", 2)
	finds("1 buyers wait and hold an order")
}

// lossyStore loses Redis between what it decided and what is noted, once.
type lossyStore struct {
	pipeline.WaitlistStore
	lose func()
}

func (s *lossyStore) once() {
	if lose := s.lose; lose != nil {
		s.lose = nil
		lose()
	}
}

func (s *lossyStore) NoteJoin(ctx context.Context, g pipeline.Generation, stay pipeline.Stay) error {
	s.once()
	return s.WaitlistStore.NoteJoin(context.WithoutCancel(ctx), g, stay)
}

func (s *lossyStore) NoteLeave(ctx context.Context, g pipeline.Generation, stay pipeline.Stay, ticket int64) (bool, error) {
	s.once()
	return s.WaitlistStore.NoteLeave(context.WithoutCancel(ctx), g, stay, ticket)
}

// TestALossBetweenDecisionAndNote: Redis lets somebody join, or leave, and loses it, and is rebuilt, before Postgres has
// it. Nobody is told what does not stand.
func TestALossBetweenDecisionAndNote(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1, Waitlist: 10}})
	r.admit("first", 1)
	r.persist(r.events(r.sale)...)
	store := &lossyStore{WaitlistStore: r.store}
	w := pipeline.NewWaitlist(r.rdb, r.keys, store, pipeline.NewLookup(r.rdb, r.keys, r.store), r.handOvers(), r.metrics.Waitlist)
	r.joins(w, "bob", 1)
	lose := func() {
		r.flush()
		r.ensure()
	}
	store.lose = lose
	r.insist(func(ctx context.Context) (pipeline.WaitDecision, error) {
		return w.Join(ctx, r.sale, pipeline.OrderRequest{UserID: "ann", Quantity: 1})
	})
	if got := r.queue(); !slices.Equal(got, []string{"bob", "ann"}) {
		t.Errorf("who waits: got %v", got)
	}
	store.lose = lose
	for store.lose != nil || slices.Contains(r.queue(), "bob") {
		_, err := w.Leave(r.ctx(), r.sale, "bob")
		if err == nil && slices.Contains(r.queue(), "bob") {
			t.Fatal("bob was told that he has left, and waits")
		}
		if err != nil && pipeline.KindOf(err) != pipeline.KindUnavailable && pipeline.KindOf(err) != pipeline.KindNotLoaded {
			t.Fatal(err)
		}
	}
	r.flush()
	r.ensure()
	if got := r.queue(); !slices.Equal(got, []string{"ann"}) {
		t.Errorf("who waits at the end: got %v", got)
	}
}
