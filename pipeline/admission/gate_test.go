package admission_test

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
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
)

// patient are the options of a Controller that waits longer than any test blocks Redis.
var patient = admission.Options{RequestTimeout: pipelinetest.CallLimit, AttemptTimeout: pipelinetest.CallLimit}

// faultyRig is a rig whose admission reaches Redis through a faulty network. Everything else goes there directly. The
// admission already has its first order numbers, its script and a connection.
type faultyRig struct {
	*pipelinetest.Rig
	proxy  *faultnet.Proxy
	client *redis.Client // the admission's own
}

func newFaultyRig(t *testing.T, opts admission.Options) *faultyRig {
	t.Helper()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 1000}})
	proxy := pipelinetest.Through(t, pipelinetest.RedisURL(r))
	client := testkit.Client(t, proxy.URL())
	r.Admission = r.NewAdmission(client, opts)
	// More than one attempt is needed where the test's limits are short.
	testkit.Eventually(t, pipelinetest.CallLimit, "the first order", func() bool {
		got, err := r.Try(pipeline.OrderRequest{UserID: "first", Quantity: 1})
		return err == nil && (got.Result == admission.Accepted || got.Result == admission.AlreadyOrdered)
	})
	return &faultyRig{r, proxy, client}
}

// requests are calls of Admit that run in the background.
type requests struct {
	r       *pipelinetest.Rig
	calls   sync.WaitGroup
	mu      sync.Mutex // protects answers
	answers map[string]result
}

type result struct {
	admission.Decision
	err error
}

func newRequests(r *pipelinetest.Rig) *requests { return &requests{r: r, answers: map[string]result{}} }

func (q *requests) send(ctx context.Context, users ...string) {
	for _, user := range users {
		q.calls.Go(func() {
			d, err := q.r.Admission.Admit(ctx, q.r.Sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
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

// wantAllAccepted also compares the answers with Redis: one slot and one event each, as in the receipt.
func (q *requests) wantAllAccepted() {
	q.r.Helper()
	answers := q.done()
	slots, events := q.r.Slots(q.r.Sale), map[string][]pipeline.Event{}
	for _, e := range q.r.Events(q.r.Sale) {
		events[e.UserID] = append(events[e.UserID], e)
	}
	for user, a := range answers {
		if a.err != nil || a.Result != admission.Accepted {
			q.r.Errorf("%s: got %q, %v, want accepted", user, a.Result, a.err)
			continue
		}
		slot, of := slots[user], events[user]
		if len(of) != 1 {
			q.r.Errorf("%s has %d events, want 1", user, len(of))
			continue
		}
		receipt := a.Receipt
		if slot.OrderID != receipt.OrderID || slot.Number != receipt.Number || of[0].OrderID != receipt.OrderID ||
			of[0].Number != receipt.Number || !of[0].AcceptedAt.Equal(receipt.AcceptedAt) ||
			of[0].Quantity != receipt.Quantity {
			q.r.Errorf("%s got receipt %+v, but Redis has slot %+v and event %+v", user, receipt, slot, of[0])
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
	calls := f.Count("sluice_admission_batch_size")
	q.send(f.Ctx(), user)
	testkit.Eventually(f.T, pipelinetest.CallLimit, "the call to be under way", func() bool {
		return f.Count("sluice_admission_batch_size") == calls+1
	})
}

func TestWhatComesDuringACallGoesTogetherWithTheNext(t *testing.T) {
	t.Parallel()
	wantBatches(t, patient, 300, 3)
}

func TestABatchIsNoLongerThanAllowed(t *testing.T) {
	t.Parallel()
	opts := patient
	opts.BatchLimit = 7
	wantBatches(t, opts, 15, 3)
}

// wantBatches fails unless requests that come during a call are answered by a number of further calls: as few as can
// be.
func wantBatches(t *testing.T, opts admission.Options, requests, batches int) {
	t.Helper()
	f := newFaultyRig(t, opts)
	q := newRequests(f.Rig)
	f.occupied(q, "second")
	q.send(f.Ctx(), users("buyer", requests)...)
	testkit.Eventually(t, pipelinetest.CallLimit, "all to wait", func() bool { return f.Admission.Waiting() == requests })
	f.proxy.Thaw()
	q.wantAllAccepted()
	// One call for the first, one for the second, and the batches for the others.
	if got, want := f.Count("sluice_admission_batch_size"), float64(2+batches); got != want {
		t.Errorf("got %v calls, want %v", got, want)
	}
}

// The quickest of the lone requests are compared with the quickest of bare script calls, made in turns so that a busy
// machine slows both. A request that waits for something waits every time; what a busy machine adds spares some.
func TestALoneRequestWaitsForNothing(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 1000}, Admission: patient})
	const rounds = 40
	keys := r.Keys.ForSale(r.Sale.Partitions[0], r.Sale.ID)
	var bare, whole []time.Duration
	for i := range rounds {
		began := time.Now()
		r.Admit(fmt.Sprintf("whole-%d", i), 1)
		whole = append(whole, time.Since(began))
		began = time.Now()
		user := fmt.Sprintf("bare-%d", i)
		request := []lua.AdmitRequest{{OrderID: user, Number: 1, UserID: user, Quantity: 1}}
		if _, err := lua.Admit(r.Ctx(), r.Redis, keys, r.Sale.ID, pipeline.DefaultStreamMaxLag, request); err != nil {
			t.Fatal(err)
		}
		bare = append(bare, time.Since(began))
	}
	slices.Sort(bare)
	slices.Sort(whole)
	const quick = rounds / 8
	if got, limit := whole[quick], 3*bare[quick]+2*time.Millisecond; got > limit {
		t.Errorf("an eighth of the lone requests took up to %s, of bare calls %s; at most %s is allowed",
			got, bare[quick], limit)
	}
	if calls := r.Count("sluice_admission_batch_size"); calls != rounds {
		t.Errorf("got %v calls for %d lone requests", calls, rounds)
	}
}

func TestAFullQueueTurnsAway(t *testing.T) {
	t.Parallel()
	const room = 5
	opts := patient
	opts.QueueLimit = room
	f := newFaultyRig(t, opts)
	q := newRequests(f.Rig)
	f.occupied(q, "second")
	q.send(f.Ctx(), users("buyer", room)...)
	testkit.Eventually(t, pipelinetest.CallLimit, "the queue to fill",
		func() bool { return f.Admission.Waiting() == room })
	_, err := f.Try(pipeline.OrderRequest{UserID: "one-too-many", Quantity: 1})
	pipelinetest.WantKind(t, err, pipeline.KindOverloaded)
	f.proxy.Thaw()
	q.wantAllAccepted()
	if _, admitted := f.Slots(f.Sale)["one-too-many"]; admitted {
		t.Error("the request that was turned away was admitted")
	}
	f.Admit("one-too-many", 1)
}

func TestAFrozenRedisIsReportedWithinTheDeadline(t *testing.T) {
	t.Parallel()
	const limit = 300 * time.Millisecond
	f := newFaultyRig(t, admission.Options{RequestTimeout: limit, AttemptTimeout: limit / 3})
	f.proxy.Freeze()
	request := pipeline.OrderRequest{UserID: "ann", Quantity: 1, IdempotencyKey: "k"}
	began := time.Now()
	_, err := f.Try(request)
	took := time.Since(began)
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
	// the margin is for a busy machine; without a deadline it is endless
	if took < limit || took > pipelinetest.CallLimit/2 {
		t.Errorf("the answer took %s, want %s", took, limit)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit/3)
	defer cancel()
	_, err = f.Admission.Admit(ctx, f.Sale, pipeline.OrderRequest{UserID: "bob", Quantity: 1})
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)

	// All the attempts arrive now. None of them may count twice, and a request with the same key gets their outcome.
	f.proxy.Thaw()
	testkit.Eventually(t, pipelinetest.CallLimit, "an answer", func() bool {
		got, err := f.Try(request)
		return err == nil && (got.Result == admission.Accepted || got.Result == admission.Replayed)
	})
	var again admission.Decision
	testkit.Eventually(t, pipelinetest.CallLimit, "an answer to the key again", func() bool {
		again, err = f.Try(request)
		return err == nil
	})
	if again.Result != admission.Replayed {
		t.Fatalf("the key again: got %q", again.Result)
	}
	// What is left then are the client's idle connections: one for commands, one for pipelines.
	testkit.Eventually(t, pipelinetest.CallLimit, "the attempts to arrive and their connections to end", func() bool {
		return f.proxy.Connections() <= 2
	})
	var of []pipeline.Event
	for _, e := range f.Events(f.Sale) {
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
	q := newRequests(f.Rig)
	q.send(f.Ctx(), "ann")
	q.wantAllAccepted()
	if got := f.proxy.Lost(); got != 2 {
		t.Fatalf("%d replies were lost, want 2", got)
	}
	if got := f.Count("sluice_admission_retries_total"); got != 2 {
		t.Errorf("the metric counts %v retries, want 2", got)
	}
	if left := f.Stock(f.Sale); left != 998 {
		t.Errorf("got %d units left, want 998", left)
	}
}

func TestALostReplyToAWholeBatch(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, admission.Options{RequestTimeout: pipelinetest.CallLimit})
	f.proxy.DropReplyTo("evalsha", 3)
	q := newRequests(f.Rig)
	q.send(f.Ctx(), users("buyer", 200)...)
	q.wantAllAccepted()
	if f.proxy.Lost() != 3 || f.Stock(f.Sale) != 799 || len(f.Events(f.Sale)) != 201 {
		t.Errorf("got %d replies lost, %d units left, %d events, want 3, 799, 201",
			f.proxy.Lost(), f.Stock(f.Sale), len(f.Events(f.Sale)))
	}
}

func TestALostLeaseOfNumbersIsTakenAgain(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, admission.Options{})
	f.Admission = f.NewAdmission(f.client, admission.Options{})
	f.proxy.DropReplyTo("{seq}", 1)
	q := newRequests(f.Rig)
	q.send(f.Ctx(), "ann")
	q.wantAllAccepted()
	if f.proxy.Lost() != 1 {
		t.Error("no reply was lost")
	}
}

func TestABuyerWhoLeftTheQueueIsNotAdmitted(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, patient)
	q := newRequests(f.Rig)
	f.occupied(q, "second")
	leaving, leave := context.WithCancel(context.Background())
	gone := newRequests(f.Rig)
	gone.send(leaving, "gone")
	q.send(f.Ctx(), "patient")
	testkit.Eventually(t, pipelinetest.CallLimit, "both to wait", func() bool { return f.Admission.Waiting() == 2 })
	leave()
	pipelinetest.WantKind(t, gone.done()["gone"].err, pipeline.KindUnavailable)
	f.proxy.Thaw()
	q.wantAllAccepted()
	if _, admitted := f.Slots(f.Sale)["gone"]; admitted {
		t.Error("a buyer who had left was admitted")
	}
}

func TestABuyerWhoLeftBetweenTwoAttemptsIsNotAdmitted(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, admission.Options{RequestTimeout: pipelinetest.CallLimit})
	f.proxy.Cut()
	leaving, leave := context.WithCancel(context.Background())
	gone := newRequests(f.Rig)
	gone.send(leaving, "gone")
	testkit.Eventually(t, pipelinetest.CallLimit, "an attempt", func() bool {
		return f.Count("sluice_admission_retries_total") > 0
	})
	leave()
	pipelinetest.WantKind(t, gone.done()["gone"].err, pipeline.KindUnavailable)
	testkit.Eventually(t, pipelinetest.CallLimit, "the attempt under way to fail",
		func() bool { return !f.Admission.Busy() })
	f.proxy.Heal()
	f.Admit("patient", 1)
	if _, admitted := f.Slots(f.Sale)["gone"]; admitted {
		t.Error("a buyer who had left was admitted")
	}
}

// Buyers come all the time while Redis is killed and comes back. Every buyer who was answered "accepted" has an event.
func TestAdmissionOutlivesRedis(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1 << 20}})
	r.Verifies()
	ctx, stop := context.WithCancel(r.Ctx())
	var buyers sync.WaitGroup
	var accepts, refusals atomic.Int64
	answered := make([]map[string]string, 8) // order id → user
	for i := range answered {
		answered[i] = map[string]string{}
		buyers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				user := fmt.Sprintf("buyer-%d-%d", i, n)
				request := pipeline.OrderRequest{UserID: user, Quantity: 1}
				got, err := r.Admission.Admit(context.Background(), r.Sale, request)
				switch {
				case err == nil && got.Result == admission.Accepted:
					answered[i][got.Receipt.OrderID] = user
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
		testkit.Eventually(t, pipelinetest.CallLimit, "buyers to be served", func() bool {
			return accepts.Load() > atLeast || t.Failed()
		})
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
		if err := server.Restart(r.Ctx()); err != nil {
			t.Error(err)
		}
	}
	atLeast := accepts.Load() + 100
	testkit.Eventually(t, pipelinetest.CallLimit, "buyers to be served again", func() bool {
		return accepts.Load() > atLeast || t.Failed()
	})
	stop()
	buyers.Wait()

	events := map[string]string{}
	for _, e := range r.Events(r.Sale) {
		events[e.OrderID] = e.UserID
	}
	for _, orders := range answered {
		for id, user := range orders {
			if events[id] != user {
				t.Errorf("%s got a receipt for order %s, but there is no event of it", user, id)
			}
		}
	}
	if sum := int64(len(events)) + r.Stock(r.Sale); sum != 1<<20 || len(r.Slots(r.Sale)) != len(events) {
		t.Errorf("stock and events add up to %d, want %d; %d buyers have slots, %d have events",
			sum, 1<<20, len(r.Slots(r.Sale)), len(events))
	}
	t.Logf("%d accepts, %d refusals", accepts.Load(), refusals.Load())
}

func TestAServerThatTookOverIsFound(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{
		RedisURL: server.URL(), Admission: admission.Options{RequestTimeout: pipelinetest.CallLimit},
	})
	r.Admit("ann", 1)
	if err := r.Redis.ReplicaOf(r.Ctx(), "127.0.0.1", "1").Err(); err != nil { // a replica of no server: it refuses writes
		t.Fatal(err)
	}
	q := newRequests(r)
	q.send(r.Ctx(), "bob")
	testkit.Eventually(t, pipelinetest.CallLimit, "an attempt", func() bool {
		return r.Count("sluice_admission_retries_total") > 0
	})
	if err := r.Redis.ReplicaOf(r.Ctx(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	// Its state may be an older one now: the gate finds it, and admits no buyer before it is verified.
	pipelinetest.WantKind(t, q.done()["bob"].err, pipeline.KindNotLoaded)
	r.Verifies()
	testkit.Eventually(t, pipelinetest.CallLimit, "orders after the verification", func() bool {
		decision, err := r.Try(pipeline.OrderRequest{UserID: "cy", Quantity: 1})
		return err == nil && decision.Result == admission.Accepted
	})
}

func TestAForgottenScriptIsSentAgain(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	r.Admit("ann", 1)
	if err := r.Redis.ScriptFlush(r.Ctx()).Err(); err != nil {
		t.Fatal(err)
	}
	r.Admit("bob", 1)
}

func TestAFullRedisWritesNothingByHalves(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	r.Admit("ann", 1)
	before := r.Dump(r.Sale)
	limit := func(bytes string) {
		if err := r.Redis.ConfigSet(r.Ctx(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1")
	withoutNumbers := r.NewAdmission(r.Redis, admission.Options{})
	for name, a := range map[string]*admission.Controller{"with numbers": r.Admission, "without": withoutNumbers} {
		for _, user := range []string{"bob", "cat"} {
			_, err := a.Admit(r.Ctx(), r.Sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
			if pipeline.KindOf(err) != pipeline.KindUnavailable {
				t.Errorf("%s: got %v, want unavailable", name, err)
			}
		}
	}
	if got := r.Count("sluice_admission_retries_total"); got != 4 {
		t.Errorf("4 requests failed after %v calls: an error that is not transient must not be repeated", got)
	}
	decision, err := r.Try(pipeline.OrderRequest{UserID: "ann", Quantity: 1})
	if err != nil || decision.Result != admission.AlreadyOrdered {
		t.Errorf("an answer that needs no memory: got %q, %v", decision.Result, err)
	}
	if after := r.Dump(r.Sale); after != before {
		t.Errorf("Redis changed from\n%s to\n%s", before, after)
	}
	limit("0")
	r.Admit("bob", 1)
	_, err = withoutNumbers.Admit(r.Ctx(), r.Sale, pipeline.OrderRequest{UserID: "cat", Quantity: 1})
	if err != nil {
		t.Error(err)
	}
}

func TestARefusalOfRedisIsNotRepeated(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Admission: patient})
	r.Admit("ann", 1)
	slots := r.Keys.Buyers(r.Sale.Partitions[0], r.Sale.ID)
	if err := r.Redis.Set(r.Ctx(), slots, "not a hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := r.Try(pipeline.OrderRequest{UserID: "bob", Quantity: 1})
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
	if got := len(r.Events(r.Sale)); got != 1 {
		t.Errorf("got %d events, want 1", got)
	}
	if got := r.Count("sluice_admission_retries_total"); got != 1 {
		t.Errorf("the metric counts %v failed calls, want 1", got)
	}
}

func TestCloseWaitsForThoseInFlightAndRefusesLaterOnes(t *testing.T) {
	t.Parallel()
	f := newFaultyRig(t, patient)
	q := newRequests(f.Rig)
	f.occupied(q, "second")
	q.send(f.Ctx(), "third")
	testkit.Eventually(t, pipelinetest.CallLimit, "one to wait", func() bool { return f.Admission.Waiting() == 1 })

	hurried, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := f.Admission.Close(hurried); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("with calls in flight Close returned %v", err)
	}
	late, cancelLate := context.WithTimeout(context.Background(), pipelinetest.CallLimit)
	defer cancelLate()
	began := time.Now()
	for _, user := range []string{"late", "first"} {
		_, err := f.Admission.Admit(late, f.Sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
		pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
	}
	if took := time.Since(began); took > pipelinetest.CallLimit/2 {
		t.Errorf("later requests were refused after %s, want at once", took)
	}
	closed := make(chan error, 1)
	go func() { closed <- f.Admission.Close(f.Ctx()) }()
	f.proxy.Thaw()
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	q.wantAllAccepted()
	if _, admitted := f.Slots(f.Sale)["late"]; admitted {
		t.Error("a request after Close was admitted")
	}
	_, err := f.Try(pipeline.OrderRequest{UserID: "later", Quantity: 1})
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
	if err := f.Admission.Close(f.Ctx()); err != nil {
		t.Errorf("Close again: %v", err)
	}
}
