package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
)

// patient are the options of an Admission that waits longer than any test holds Redis up.
var patient = pipeline.AdmissionOptions{RequestTimeout: callLimit, AttemptTimeout: callLimit}

// faultyRig is a rig whose admission reaches Redis through a bad network. Everything else goes there directly. The
// admission has its first order numbers, its script and a connection.
type faultyRig struct {
	*rig
	proxy  *faultnet.Proxy
	client *redis.Client // the admission's own
}

func newFaultyRig(t *testing.T, opts pipeline.AdmissionOptions) *faultyRig {
	t.Helper()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 1000}})
	proxy := through(t, redisURL(r))
	client := testkit.Client(t, proxy.URL())
	r.admission = r.newAdmission(client, opts)
	testkit.Eventually(t, callLimit, "the first order", func() bool { // more often than once where the test's limits are short
		got, err := r.try(pipeline.OrderRequest{UserID: "first", Quantity: 1})
		return err == nil && (got.Result == pipeline.AdmissionAccepted || got.Result == pipeline.AdmissionAlreadyOrdered)
	})
	return &faultyRig{r, proxy, client}
}

// requests are calls of Admit that run in the background.
type requests struct {
	r       *rig
	calls   sync.WaitGroup
	mu      sync.Mutex // protects answers
	answers map[string]result
}

type result struct {
	pipeline.Decision
	err error
}

func (r *rig) requests() *requests { return &requests{r: r, answers: map[string]result{}} }

func (q *requests) send(ctx context.Context, users ...string) {
	for _, user := range users {
		q.calls.Go(func() {
			d, err := q.r.admission.Admit(ctx, q.r.sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
			q.mu.Lock()
			defer q.mu.Unlock()
			q.answers[user] = result{d, err}
		})
	}
}

// done waits for all answers.
func (q *requests) done() map[string]result {
	q.calls.Wait()
	return q.answers
}

// wantAllAccepted also holds the answers against what Redis has stored: one slot and one event each, as told.
func (q *requests) wantAllAccepted() {
	q.r.Helper()
	answers := q.done()
	slots, events := q.r.slots(q.r.sale), map[string][]pipeline.Event{}
	for _, e := range q.r.events(q.r.sale) {
		events[e.UserID] = append(events[e.UserID], e)
	}
	for user, a := range answers {
		if a.err != nil || a.Result != pipeline.AdmissionAccepted {
			q.r.Errorf("%s: got %q, %v, want accepted", user, a.Result, a.err)
			continue
		}
		slot, of := slots[user], events[user]
		if len(of) != 1 {
			q.r.Errorf("%s has %d events, want 1", user, len(of))
			continue
		}
		told := a.Receipt
		if slot.OrderID != told.OrderID || slot.Number != told.Number || of[0].OrderID != told.OrderID ||
			of[0].Number != told.Number || !of[0].AcceptedAt.Equal(told.AcceptedAt) || of[0].Quantity != told.Quantity {
			q.r.Errorf("%s was told %+v, but Redis holds slot %+v and event %+v", user, told, slot, of[0])
		}
	}
}

func users(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return list
}

// occupied sends one request whose script call then hangs in the frozen network.
func (f *faultyRig) occupied(q *requests, user string) {
	f.Helper()
	f.proxy.Freeze()
	calls := f.count("sluice_admission_batch_size")
	q.send(f.ctx(), user)
	testkit.Eventually(f.T, callLimit, "the call to be under way", func() bool {
		return f.count("sluice_admission_batch_size") == calls+1
	})
}

func TestWhatComesDuringACallGoesTogetherWithTheNext(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, patient)
	q := f.requests()
	f.occupied(q, "second")
	const waiting = 300
	q.send(f.ctx(), users("buyer", waiting)...)
	testkit.Eventually(t, callLimit, "all to wait", func() bool { return f.admission.Waiting() == waiting })
	f.proxy.Thaw()
	q.wantAllAccepted()
	// One call for the first, one for the second, and as few as can be for the others.
	if got, want := f.count("sluice_admission_batch_size"), float64(2+3); got != want {
		t.Errorf("got %v calls, want %v", got, want)
	}
}

func TestABatchIsNoLongerThanAllowed(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, pipeline.AdmissionOptions{RequestTimeout: callLimit, AttemptTimeout: callLimit, BatchLimit: 7})
	q := f.requests()
	f.occupied(q, "second")
	q.send(f.ctx(), users("buyer", 15)...)
	testkit.Eventually(t, callLimit, "all to wait", func() bool { return f.admission.Waiting() == 15 })
	f.proxy.Thaw()
	q.wantAllAccepted()
	if got, want := f.count("sluice_admission_batch_size"), float64(2+3); got != want {
		t.Errorf("got %v calls, want %v", got, want)
	}
}

// The quick ones of lone requests are compared with those of bare script calls, made in turns so that a busy machine slows
// both. A request that waits for something waits every time; what a busy machine adds spares some.
func TestALoneRequestWaitsForNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 1000}, Admission: patient})
	const rounds = 40
	keys := lua.AdmitKeys{
		Sale: r.keys.Sale(r.sale.Partitions[0], r.sale.ID), Buyers: r.keys.Buyers(r.sale.Partitions[0], r.sale.ID),
		Orders: r.keys.Orders(r.sale.Partitions[0]), Trusted: r.keys.Trusted(r.sale.Partitions[0]),
		Waitlist: r.keys.Waitlist(r.sale.Partitions[0], r.sale.ID), Waiting: r.keys.Waiting(r.sale.Partitions[0], r.sale.ID),
	}
	var bare, whole []time.Duration
	for i := range rounds {
		began := time.Now()
		r.admit(fmt.Sprintf("whole-%d", i), 1)
		whole = append(whole, time.Since(began))
		began = time.Now()
		request := lua.AdmitRequest{OrderID: fmt.Sprintf("bare-%d", i), Number: 1, UserID: fmt.Sprintf("bare-%d", i), Quantity: 1}
		if _, err := lua.Admit(r.ctx(), r.rdb, keys, r.sale.ID, pipeline.DefaultStreamMaxLag, []lua.AdmitRequest{request}); err != nil {
			t.Fatal(err)
		}
		bare = append(bare, time.Since(began))
	}
	slices.Sort(bare)
	slices.Sort(whole)
	const quick = rounds / 8
	if got, limit := whole[quick], 3*bare[quick]+2*time.Millisecond; got > limit {
		t.Errorf("an eighth of the lone requests took up to %s, of bare calls %s; at most %s is allowed", got, bare[quick], limit)
	}
	if calls := r.count("sluice_admission_batch_size"); calls != rounds {
		t.Errorf("got %v calls for %d lone requests", calls, rounds)
	}
}

func TestAFullQueueTurnsAway(t *testing.T) {
	t.Parallel()
	const room = 5
	f := newFaultyRig(t, pipeline.AdmissionOptions{RequestTimeout: callLimit, AttemptTimeout: callLimit, QueueLimit: room})
	q := f.requests()
	f.occupied(q, "second")
	q.send(f.ctx(), users("buyer", room)...)
	testkit.Eventually(t, callLimit, "the queue to fill", func() bool { return f.admission.Waiting() == room })
	_, err := f.try(pipeline.OrderRequest{UserID: "one-too-many", Quantity: 1})
	wantKind(t, err, pipeline.KindOverloaded)
	f.proxy.Thaw()
	q.wantAllAccepted()
	if _, marked := f.slots(f.sale)["one-too-many"]; marked {
		t.Error("the request that was turned away was admitted")
	}
	f.admit("one-too-many", 1)
}

func TestAFrozenRedisIsToldWithinTheDeadline(t *testing.T) {
	t.Parallel()
	const limit = 300 * time.Millisecond
	f := newFaultyRig(t, pipeline.AdmissionOptions{RequestTimeout: limit, AttemptTimeout: limit / 3})
	f.proxy.Freeze()
	request := pipeline.OrderRequest{UserID: "ann", Quantity: 1, IdempotencyKey: "k"}
	began := time.Now()
	_, err := f.try(request)
	took := time.Since(began)
	wantKind(t, err, pipeline.KindUnavailable)
	if took < limit || took > callLimit/2 { // the margin is for a busy machine: what has no deadline takes for ever
		t.Errorf("the answer took %s, want %s", took, limit)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit/3)
	defer cancel()
	_, err = f.admission.Admit(ctx, f.sale, pipeline.OrderRequest{UserID: "bob", Quantity: 1})
	wantKind(t, err, pipeline.KindUnavailable)

	// All the tries arrive now. None of them may count twice, and the same key tells the buyer what became of them.
	f.proxy.Thaw()
	testkit.Eventually(t, callLimit, "an answer", func() bool {
		got, err := f.try(request)
		return err == nil && (got.Result == pipeline.AdmissionAccepted || got.Result == pipeline.AdmissionReplayed)
	})
	var again pipeline.Decision
	testkit.Eventually(t, callLimit, "an answer to the key again", func() bool {
		again, err = f.try(request)
		return err == nil
	})
	if again.Result != pipeline.AdmissionReplayed {
		t.Fatalf("the key again: got %q", again.Result)
	}
	// What is left then are the client's idle connections: one for commands, one for pipelines.
	testkit.Eventually(t, callLimit, "the tries to arrive and their connections to end", func() bool { return f.proxy.Connections() <= 2 })
	var of []pipeline.Event
	for _, e := range f.events(f.sale) {
		if e.UserID == "ann" {
			of = append(of, e)
		}
	}
	if len(of) != 1 || of[0].OrderID != again.Receipt.OrderID {
		t.Errorf("got events %+v, want the one of order %s", of, again.Receipt.OrderID)
	}
}

func TestALostReplyIsOneAccept(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, patient) // the only calls that fail are those whose replies are lost
	f.proxy.DropReplyTo("evalsha", 2)
	q := f.requests()
	q.send(f.ctx(), "ann")
	q.wantAllAccepted()
	if got := f.proxy.Lost(); got != 2 {
		t.Fatalf("%d replies were lost, want 2", got)
	}
	if got := f.count("sluice_admission_retries_total"); got != 2 {
		t.Errorf("the metric counts %v retries, want 2", got)
	}
	if left := f.stock(f.sale); left != 998 {
		t.Errorf("got %d units left, want 998", left)
	}
}

func TestALostReplyToAWholeBatch(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, pipeline.AdmissionOptions{RequestTimeout: callLimit})
	f.proxy.DropReplyTo("evalsha", 3)
	q := f.requests()
	q.send(f.ctx(), users("buyer", 200)...)
	q.wantAllAccepted()
	if f.proxy.Lost() != 3 || f.stock(f.sale) != 799 || len(f.events(f.sale)) != 201 {
		t.Errorf("got %d replies lost, %d units left, %d events, want 3, 799, 201", f.proxy.Lost(), f.stock(f.sale), len(f.events(f.sale)))
	}
}

func TestALostLeaseOfNumbersIsTakenAgain(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, pipeline.AdmissionOptions{})
	f.admission = f.newAdmission(f.client, pipeline.AdmissionOptions{})
	f.proxy.DropReplyTo("{seq}", 1)
	q := f.requests()
	q.send(f.ctx(), "ann")
	q.wantAllAccepted()
	if f.proxy.Lost() != 1 {
		t.Error("no reply was lost")
	}
}

func TestABuyerWhoLeftTheQueueIsNotAdmitted(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, patient)
	q := f.requests()
	f.occupied(q, "second")
	leaving, leave := context.WithCancel(context.Background())
	gone := f.requests()
	gone.send(leaving, "gone")
	q.send(f.ctx(), "stays")
	testkit.Eventually(t, callLimit, "both to wait", func() bool { return f.admission.Waiting() == 2 })
	leave()
	wantKind(t, gone.done()["gone"].err, pipeline.KindUnavailable)
	f.proxy.Thaw()
	q.wantAllAccepted()
	if _, marked := f.slots(f.sale)["gone"]; marked {
		t.Error("a buyer who had left was admitted")
	}
}

func TestABuyerWhoLeftBetweenTwoTriesIsNotAdmitted(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, pipeline.AdmissionOptions{RequestTimeout: callLimit})
	f.proxy.Cut()
	leaving, leave := context.WithCancel(context.Background())
	gone := f.requests()
	gone.send(leaving, "gone")
	testkit.Eventually(t, callLimit, "a try", func() bool { return f.count("sluice_admission_retries_total") > 0 })
	leave()
	wantKind(t, gone.done()["gone"].err, pipeline.KindUnavailable)
	testkit.Eventually(t, callLimit, "the try under way to fail", func() bool { return !f.admission.Busy() })
	f.proxy.Heal()
	f.admit("stays", 1)
	if _, marked := f.slots(f.sale)["gone"]; marked {
		t.Error("a buyer who had left was admitted")
	}
}

// Buyers come all the time while Redis is killed and comes back. Whoever was told "accepted" has an event.
func TestAdmissionOutlivesRedis(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1 << 20}})
	r.verifies()
	ctx, stop := context.WithCancel(r.ctx())
	var buyers sync.WaitGroup
	var accepts, refusals atomic.Int64
	told := make([]map[string]string, 8) // order id → user
	for i := range told {
		told[i] = map[string]string{}
		buyers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				user := fmt.Sprintf("buyer-%d-%d", i, n)
				got, err := r.admission.Admit(context.Background(), r.sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
				switch {
				case err == nil && got.Result == pipeline.AdmissionAccepted:
					told[i][got.Receipt.OrderID] = user
					accepts.Add(1)
				case pipeline.KindOf(err) == pipeline.KindUnavailable:
					refusals.Add(1)
				case pipeline.KindOf(err) == pipeline.KindNotLoaded: // until Redis is verified
					refusals.Add(1)
				default:
					t.Errorf("%s: got %q, %v", user, got.Result, err)
					return
				}
			}
		})
	}
	for range 2 {
		atLeast := accepts.Load() + 100
		testkit.Eventually(t, callLimit, "buyers to be served", func() bool { return accepts.Load() > atLeast || t.Failed() })
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
		if err := server.Restart(r.ctx()); err != nil {
			t.Error(err)
		}
	}
	atLeast := accepts.Load() + 100
	testkit.Eventually(t, callLimit, "buyers to be served again", func() bool { return accepts.Load() > atLeast || t.Failed() })
	stop()
	buyers.Wait()

	events := map[string]string{}
	for _, e := range r.events(r.sale) {
		events[e.OrderID] = e.UserID
	}
	for _, orders := range told {
		for id, user := range orders {
			if events[id] != user {
				t.Errorf("%s was told that order %s is accepted, but there is no event of it", user, id)
			}
		}
	}
	if sum := int64(len(events)) + r.stock(r.sale); sum != 1<<20 || len(r.slots(r.sale)) != len(events) {
		t.Errorf("stock and events add up to %d, want %d; %d buyers are marked, %d have events", sum, 1<<20, len(r.slots(r.sale)), len(events))
	}
	t.Logf("%d accepts, %d answers that came to nothing", accepts.Load(), refusals.Load())
}

func TestAServerThatTookOverIsFound(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Admission: pipeline.AdmissionOptions{RequestTimeout: callLimit}})
	r.admit("ann", 1)
	if err := r.rdb.ReplicaOf(r.ctx(), "127.0.0.1", "1").Err(); err != nil { // a replica of nobody: it refuses writes
		t.Fatal(err)
	}
	q := r.requests()
	q.send(r.ctx(), "bob")
	testkit.Eventually(t, callLimit, "a try", func() bool { return r.count("sluice_admission_retries_total") > 0 })
	if err := r.rdb.ReplicaOf(r.ctx(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	// It may hold an older state now: the gate finds it, and nobody is admitted before it is verified.
	wantKind(t, q.done()["bob"].err, pipeline.KindNotLoaded)
	r.verifies()
	testkit.Eventually(t, callLimit, "orders after the verification", func() bool {
		decision, err := r.try(pipeline.OrderRequest{UserID: "cy", Quantity: 1})
		return err == nil && decision.Result == pipeline.AdmissionAccepted
	})
}

func TestAForgottenScriptIsSentAgain(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL()})
	r.admit("ann", 1)
	if err := r.rdb.ScriptFlush(r.ctx()).Err(); err != nil {
		t.Fatal(err)
	}
	r.admit("bob", 1)
}

func TestAFullRedisWritesNothingByHalves(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL()})
	r.admit("ann", 1)
	before := r.dump(r.sale)
	limit := func(bytes string) {
		if err := r.rdb.ConfigSet(r.ctx(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1")
	withoutNumbers := r.newAdmission(r.rdb, pipeline.AdmissionOptions{})
	for name, a := range map[string]*pipeline.Admission{"with numbers": r.admission, "without": withoutNumbers} {
		for _, user := range []string{"bob", "cat"} {
			_, err := a.Admit(r.ctx(), r.sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
			if pipeline.KindOf(err) != pipeline.KindUnavailable {
				t.Errorf("%s: got %v, want unavailable", name, err)
			}
		}
	}
	if got := r.count("sluice_admission_retries_total"); got != 4 {
		t.Errorf("4 requests failed after %v calls: what does not pass by itself is not repeated", got)
	}
	if decision, err := r.try(pipeline.OrderRequest{UserID: "ann", Quantity: 1}); err != nil || decision.Result != pipeline.AdmissionAlreadyOrdered {
		t.Errorf("an answer that needs no memory: got %q, %v", decision.Result, err)
	}
	if after := r.dump(r.sale); after != before {
		t.Errorf("Redis changed from\n%s to\n%s", before, after)
	}
	limit("0")
	r.admit("bob", 1)
	if _, err := withoutNumbers.Admit(r.ctx(), r.sale, pipeline.OrderRequest{UserID: "cat", Quantity: 1}); err != nil {
		t.Error(err)
	}
}

func TestARefusalOfRedisIsNotRepeated(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Admission: patient})
	r.admit("ann", 1)
	if err := r.rdb.Set(r.ctx(), r.keys.Buyers(r.sale.Partitions[0], r.sale.ID), "not a hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := r.try(pipeline.OrderRequest{UserID: "bob", Quantity: 1})
	wantKind(t, err, pipeline.KindUnavailable)
	if got := len(r.events(r.sale)); got != 1 {
		t.Errorf("got %d events, want 1", got)
	}
	if got := r.count("sluice_admission_retries_total"); got != 1 {
		t.Errorf("the metric counts %v failed calls, want 1", got)
	}
}

func TestCloseWaitsForThoseInFlightAndRefusesLaterOnes(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, patient)
	q := f.requests()
	f.occupied(q, "second")
	q.send(f.ctx(), "third")
	testkit.Eventually(t, callLimit, "one to wait", func() bool { return f.admission.Waiting() == 1 })

	hurried, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := f.admission.Close(hurried); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("with calls in flight Close returned %v", err)
	}
	late, cancelLate := context.WithTimeout(context.Background(), callLimit)
	defer cancelLate()
	began := time.Now()
	for _, user := range []string{"late", "first"} {
		_, err := f.admission.Admit(late, f.sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
		wantKind(t, err, pipeline.KindUnavailable)
	}
	if took := time.Since(began); took > callLimit/2 {
		t.Errorf("later requests were refused after %s, want at once", took)
	}
	closed := make(chan error, 1)
	go func() { closed <- f.admission.Close(f.ctx()) }()
	f.proxy.Thaw()
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	q.wantAllAccepted()
	if _, marked := f.slots(f.sale)["late"]; marked {
		t.Error("a request after Close was admitted")
	}
	_, err := f.try(pipeline.OrderRequest{UserID: "later", Quantity: 1})
	wantKind(t, err, pipeline.KindUnavailable)
	if err := f.admission.Close(f.ctx()); err != nil {
		t.Errorf("Close again: %v", err)
	}
}
