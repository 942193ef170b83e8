package waitlist_test

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
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
	"sluice/pipeline/waitlist"
)

// TestWaitlistSurvivesEverything: people join, leave and cancel while Redis loses all it has, twice. A buyer who got
// the answer that it waits keeps its position, one who got the answer that it has left gets nothing, and all are served
// in the order of their tickets as they stood when Redis was lost.
func TestWaitlistSurvivesEverything(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	const units, people, sides = 5, 120, 4
	r := pipelinetest.New(
		t,
		pipelinetest.Options{
			RedisURL: server.URL(),
			Sale:     pipeline.Sale{Total: units, Waitlist: 1000, PaymentWindow: time.Hour},
		},
	)
	r.Verifies()
	r.AdmitMany("first", units)
	r.Persist(r.Events(r.Sale)...)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	tickets, left := map[string]int64{}, map[string]bool{}
	var joined atomic.Int64
	var going sync.WaitGroup
	for side := range sides {
		random := rand.New(rand.NewPCG(seed, uint64(side)))
		w := r.Waitlist() // an api of its own
		going.Go(func() {
			for n := side; n < people; n += sides {
				user := fmt.Sprint("waits-", n)
				d := insist(r, func(ctx context.Context) (waitlist.Decision, error) {
					return w.Join(ctx, r.Sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
				})
				mu.Lock()
				tickets[user] = d.Entry.Ticket
				mu.Unlock()
				joined.Add(1)
				if random.IntN(4) == 0 {
					for {
						_, err := w.Leave(r.Ctx(), r.Sale, user)
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
		testkit.Eventually(t, pipelinetest.SettleLimit, "people join", func() bool {
			return joined.Load() >= at || t.Failed()
		})
		r.Flush()
	}
	going.Wait()
	testkit.Eventually(t, pipelinetest.SettleLimit, "Redis is verified", r.Trusted)
	r.Flush() // once more, with nothing under way
	testkit.Eventually(t, pipelinetest.SettleLimit, "Redis is verified again", func() bool {
		return r.Trusted() && len(r.Queue()) > 0
	})
	queue := r.Queue()
	if len(queue) != people-len(left) {
		t.Errorf("%d wait, want %d", len(queue), people-len(left))
	}
	var last int64
	for _, user := range queue {
		if left[user] || tickets[user] <= last {
			t.Errorf("%s waits with ticket %d after %d; left: %t", user, tickets[user], last, left[user])
		}
		last = tickets[user]
	}
	r.Balanced(r.Sale, units)

	// Then they are served, one cancelled order at a time.
	startServing(r)
	for n := range units {
		r.Exec(1, `update orders set pay_by = now() - interval '1 s' where user_id = $1`, fmt.Sprint("first-", n))
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "units are handed over", func() bool {
		return len(r.Queue()) == len(queue)-units
	})
	r.Settled()
	servedInTurn(r, units)
	r.Balanced(r.Sale, units)
	slots := r.Slots(r.Sale)
	for _, user := range queue[:units] {
		if _, ordered := slots[user]; !ordered {
			t.Errorf("%s was first in the list and has no order", user)
		}
	}
}

// insist asks until the stores answer.
func insist(r *pipelinetest.Rig, ask func(context.Context) (waitlist.Decision, error)) waitlist.Decision {
	for {
		d, err := ask(r.Ctx())
		switch {
		case err == nil && d.Result != waitlist.Joined:
			r.Errorf("join: got %+v", d)
			return d
		case err == nil:
			return d
		case pipeline.KindOf(err) != pipeline.KindNotLoaded && pipeline.KindOf(err) != pipeline.KindUnavailable,
			r.Ctx().Err() != nil:
			r.Errorf("join: %v", err)
			return d
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// endOrder expires an order in Postgres.
func endOrder(r *pipelinetest.Rig, orderID string) {
	r.Helper()
	if _, changed, err := r.Store.CancelOrder(r.Ctx(), r.Sale.ID, orderID, "first"); err != nil || !changed {
		r.Fatalf("end the order: %t, %v", changed, err)
	}
}

// TestJoinsAndLeavesAtEachPointOfDeath: whichever of the two stores has it and the other has not, repeating the
// request, or a rebuild, ends in what was answered or will be.
func TestJoinsAndLeavesAtEachPointOfDeath(t *testing.T) {
	t.Parallel()
	r := soldOutRig(t)
	w := r.Waitlist()

	// Redis has it, Postgres has not: the buyer got no answer. Asking again gives the same entry.
	r.Joins(w, "ann", 1)
	r.Exec(1, `delete from waitlist where user_id = 'ann'`)
	if d := r.Joins(w, "ann", 1); d.Entry.Ticket != 1 {
		t.Errorf("ann again: ticket %d", d.Entry.Ticket)
	}
	r.Exec(1, `delete from waitlist where user_id = 'ann'`)
	r.Flush()
	r.Ensure()
	if got := r.Queue(); len(got) != 0 {
		t.Errorf("a buyer who got no answer waits: %v", got)
	}

	// A leave of which Postgres knows nothing: the buyer got no answer, and waits again after a loss; asking again ends
	// it.
	r.Joins(w, "bob", 1)
	r.Joins(w, "cy", 1)
	mine, err := w.Mine(r.Ctx(), r.Sale, "bob")
	if err != nil {
		t.Fatal(err)
	}
	p := r.Sale.PartitionOf("bob")
	code, _, _, err := lua.Leave(
		r.Ctx(), r.Redis, r.Keys.ForSale(p, r.Sale.ID), r.Sale.ID, 1000,
		lua.ReleaseItem{UserID: "bob", OrderID: mine.Entry.OrderID},
	)
	if err != nil || code != lua.LeaveLeft {
		t.Fatalf("leave: %s, %v", code, err)
	}
	if _, err := w.Leave(r.Ctx(), r.Sale, "bob"); err != nil {
		t.Errorf("leave again: %v", err)
	}
	_, err = w.Leave(r.Ctx(), r.Sale, "bob")
	pipelinetest.WantKind(t, err, pipeline.KindNotFound)
	r.Flush()
	r.Ensure()
	if got := r.Queue(); !slices.Equal(got, []string{"cy"}) {
		t.Errorf("the waitlist: got %v, want cy", got)
	}

	// A Redis that is older than the leave, under the same process: the ticket shows it.
	list, waiting := r.Keys.Waitlist(p, r.Sale.ID), r.Keys.Waiting(p, r.Sale.ID)
	var saved []string
	for _, key := range []string{r.Keys.Sale(p, r.Sale.ID), list, waiting} {
		saved = append(saved, key, r.Redis.Dump(r.Ctx(), key).Val())
	}
	if _, err := w.Leave(r.Ctx(), r.Sale, "cy"); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(saved); i += 2 {
		if err := r.Redis.RestoreReplace(r.Ctx(), saved[i], 0, saved[i+1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	verifier := recovery.NewVerifier(r.VerifierConfig())
	if err := verifier.Job().Run(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	if got := r.Queue(); len(got) != 0 {
		t.Errorf("a buyer who has left waits again: %v", got)
	}
	if got := r.Rebuilds(); got[len(got)-1].Reason != "waitlist" {
		t.Errorf("rebuilds: %+v", got)
	}
	r.Balanced(r.Sale, 1)
}

// TestDoubleJoining: one buyer, many requests at once through several apis, one entry.
func TestDoubleJoining(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 1, Waitlist: 3}})
	r.Admit("first", 1)
	apis := []*waitlist.Service{r.Waitlist(), r.Waitlist(), r.Waitlist()}
	entries := make([]pipeline.WaitlistEntry, 30)
	pipelinetest.Together(len(entries), func(i int) {
		d, err := apis[i%3].Join(r.Ctx(), r.Sale, pipeline.OrderRequest{UserID: "ann", Quantity: 1})
		if err != nil || d.Result != waitlist.Joined || d.Position != 1 {
			t.Errorf("join: %+v, %v", d, err)
		}
		entries[i] = d.Entry
	})
	for _, entry := range entries {
		if entry != entries[0] {
			t.Errorf("got %+v and %+v", entry, entries[0])
		}
	}
	r.Exec(1, `update waitlist set number = number`) // one row
	codes := map[waitlist.Result]int{}
	var mu sync.Mutex
	pipelinetest.Together(20, func(i int) {
		d, err := apis[i%3].Join(r.Ctx(), r.Sale, pipeline.OrderRequest{UserID: fmt.Sprint("waits-", i), Quantity: 1})
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		codes[d.Result]++
		mu.Unlock()
	})
	if codes[waitlist.Joined] != 2 || codes[waitlist.Full] != 18 {
		t.Errorf("the limit of 3: got %v", codes)
	}
	if n, err := apis[0].Size(r.Ctx(), r.Sale); err != nil || n != 3 {
		t.Errorf("people: %d, %v", n, err)
	}
}

// TestTheAuditSeesABrokenWaitlist: a buyer who waits and has an order, and a list that is not what is counted.
func TestTheAuditSeesABrokenWaitlist(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 2, Waitlist: 5}})
	r.Admit("first", 2)
	w := r.Waitlist()
	ann := r.Joins(w, "ann", 1)
	p := r.Sale.Partitions[0]
	entry := r.Hash(r.Keys.Waiting(p, r.Sale.ID))["ann"]
	finds := func(want string) {
		t.Helper()
		report, err := r.Auditor.Audit(r.Ctx(), r.Sale)
		if err != nil || !strings.Contains(strings.Join(report.Findings, "; "), want) {
			t.Errorf("audit: got %+v, %v, want %q", report, err, want)
		}
	}
	r.Redis.HDel(r.Ctx(), r.Keys.Waiting(p, r.Sale.ID), "ann")
	finds("1 people wait, the sale counts 1 and Redis holds 0 entries")
	r.Redis.HSet(r.Ctx(), r.Keys.Waiting(p, r.Sale.ID), "ann", entry, "first", entry)
	r.Redis.ZAdd(r.Ctx(), r.Keys.Waitlist(p, r.Sale.ID), redis.Z{Score: float64(ann.Entry.Ticket + 1), Member: "first"})
	r.Redis.HSet(r.Ctx(), r.Keys.Sale(p, r.Sale.ID), "waiting", 2)
	finds("1 buyers wait and hold an order")
}

// lossyStore makes Redis lose its data between its decision and the record of it, once.
type lossyStore struct {
	waitlist.Store
	lose func()
}

func (s *lossyStore) once() {
	if lose := s.lose; lose != nil {
		s.lose = nil
		lose()
	}
}

func (s *lossyStore) RecordJoin(ctx context.Context, g pipeline.Generation, entry pipeline.WaitlistEntry) error {
	s.once()
	return s.Store.RecordJoin(context.WithoutCancel(ctx), g, entry)
}

func (s *lossyStore) RecordLeave(
	ctx context.Context, g pipeline.Generation, entry pipeline.WaitlistEntry, ticket int64,
) (bool, error) {
	s.once()
	return s.Store.RecordLeave(context.WithoutCancel(ctx), g, entry, ticket)
}

// TestALossBetweenDecisionAndNote: Redis lets somebody join, or leave, and loses it, and is rebuilt, before Postgres
// has it. Nobody gets an answer that does not stand.
func TestALossBetweenDecisionAndNote(t *testing.T) {
	t.Parallel()
	r := soldOutRig(t)
	store := &lossyStore{Store: r.Store}
	w := waitlist.NewService(
		r.Redis, r.Keys, store, lifecycle.NewLookup(r.Redis, r.Keys, r.Store), r.HandOvers(), r.Metrics.Waitlist,
	)
	r.Joins(w, "bob", 1)
	lose := func() {
		r.Flush()
		r.Ensure()
	}
	store.lose = lose
	insist(r, func(ctx context.Context) (waitlist.Decision, error) {
		return w.Join(ctx, r.Sale, pipeline.OrderRequest{UserID: "ann", Quantity: 1})
	})
	if got := r.Queue(); !slices.Equal(got, []string{"bob", "ann"}) {
		t.Errorf("the waitlist: got %v", got)
	}
	store.lose = lose
	for store.lose != nil || slices.Contains(r.Queue(), "bob") {
		_, err := w.Leave(r.Ctx(), r.Sale, "bob")
		if err == nil && slices.Contains(r.Queue(), "bob") {
			t.Fatal("bob got the answer that he has left, and waits")
		}
		if err != nil && pipeline.KindOf(err) != pipeline.KindUnavailable && pipeline.KindOf(err) != pipeline.KindNotLoaded {
			t.Fatal(err)
		}
	}
	r.Flush()
	r.Ensure()
	if got := r.Queue(); !slices.Equal(got, []string{"ann"}) {
		t.Errorf("the waitlist at the end: got %v", got)
	}
}
