package webhook_test

import (
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/webhook"
)

func wantSubjects(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("events:\n got %q\nwant %q", got, want)
	}
}

// TestDelivery checks what a receiver gets of an order, field by field.
func TestDelivery(t *testing.T) {
	r := newRig(t)
	r.sale("drop", 2)
	in := newReceiver(t)
	e := in.register(r)
	ids := r.orders("drop", 2)
	r.deliverer(r.store, patient)
	in.wait(3)
	wantSubjects(t, in.subjects(), []string{ids[0], ids[1], "drop"})
	first, last := in.first[0], in.first[2]
	if first.SpecVersion != "1.0" || first.Source != "/v1/sales/drop" || first.Type != webhook.TypeOrderConfirmed ||
		first.ContentType != "application/json" || uuid.Validate(first.ID) != nil ||
		time.Since(first.Time).Abs() > time.Hour {
		t.Errorf("got %+v", first)
	}
	for name, want := range map[string]any{
		"order_id": ids[0], "sale_id": "drop", "status": "confirmed", "quantity": 1.0, "version": 1.0,
	} {
		if first.Data[name] != want {
			t.Errorf("%s: got %v, want %v", name, first.Data[name], want)
		}
	}
	if user, _ := first.Data["user_id"].(string); !strings.HasPrefix(user, "buyer-") {
		t.Errorf("got %v, want the buyer", first.Data)
	}
	if last.Type != webhook.TypeSaleSoldOut || last.Data["sold"] != 2.0 {
		t.Errorf("got %+v, want the sale sold out", last)
	}
	testkit.Eventually(t, patient, "the deliveries to be noted", func() bool { return r.endpoint(e.ID).Backlog == 0 })
	if got := r.endpoint(e.ID); got.DeliveredAt.IsZero() || got.Attempts != 0 || got.LastError != "" {
		t.Errorf("got %+v", got)
	}
}

// TestOrderOutlivesTrouble: the receiver answers with errors, hangs, and cuts connections before or after it took the
// event, at random, with several processes delivering. First arrivals are in the order of commits, and every event
// arrives.
func TestOrderOutlivesTrouble(t *testing.T) {
	r := newRig(t)
	const orders = 60
	r.sale("drop", 1000)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	in := newReceiver(t)
	in.answer = func(_ int, w http.ResponseWriter, request *http.Request) {
		mu.Lock()
		fate := random.IntN(20)
		mu.Unlock()
		switch fate {
		case 0, 1, 2:
			w.WriteHeader([]int{500, 429, 302}[fate])
		case 3: // hangs, and takes it in the end
			select {
			case <-time.After(1500 * time.Millisecond):
			case <-request.Context().Done():
			}
			w.WriteHeader(http.StatusOK)
		case 4, 5: // takes it or not, and the answer is lost
			if fate == 5 {
				w.(*takingWriter).take()
			}
			conn, _, err := http.NewResponseController(w.(*takingWriter).ResponseWriter).Hijack()
			if err != nil {
				t.Errorf("hijack: %v", err)
				return
			}
			conn.Close()
		default:
			w.WriteHeader(http.StatusOK)
		}
	}
	in.register(r, webhook.TypeOrderConfirmed)
	for range 3 {
		r.deliverer(r.store, time.Second)
	}
	ids := r.orders("drop", orders)
	in.wait(orders)
	wantSubjects(t, in.subjects(), ids)
	requests, _, again := in.counts()
	t.Logf("%d requests for %d events, %d taken again", requests, orders, again)
}

// TestDeathBeforeTheNote: a process delivers and dies before it saves its progress. The next one repeats, and skips
// nothing.
func TestDeathBeforeTheNote(t *testing.T) {
	r := newRig(t)
	r.sale("drop", 100)
	proxy, err := faultnet.Listen(r.url)
	must(t, err)
	t.Cleanup(func() { must(t, proxy.Close()) })
	in := newReceiver(t)
	var once sync.Once
	in.answer = func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			once.Do(proxy.Cut)
		}
		w.WriteHeader(http.StatusOK)
	}
	e := in.register(r, webhook.TypeOrderConfirmed)
	ids := r.orders("drop", 12)
	stop := r.deliverer(r.open(proxy.URL()), patient)
	in.wait(1)
	stop()
	_, delivered, _ := in.counts()
	if got := r.endpoint(e.ID).Backlog; got != 12 {
		t.Fatalf("the backlog is %d, want nothing noted", got)
	}
	r.exec(`update endpoints set leased_until = now()`) // as if the lease were over
	r.deliverer(r.store, patient)
	testkit.Eventually(t, patient, "everything to be noted", func() bool { return r.endpoint(e.ID).Backlog == 0 })
	wantSubjects(t, in.subjects(), ids)
	if _, _, again := in.counts(); again != delivered {
		t.Errorf("%d came again, want the %d that were not noted", again, delivered)
	}
}

// TestAHangDelaysNoOther: one endpoint never answers; another gets everything meanwhile.
func TestAHangDelaysNoOther(t *testing.T) {
	r := newRig(t)
	r.sale("drop", 100)
	hangs, fine := newReceiver(t), newReceiver(t)
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(release) // before the server closes, which waits
	hangs.answer = func(_ int, w http.ResponseWriter, _ *http.Request) {
		<-held
		w.WriteHeader(http.StatusOK)
	}
	hangs.register(r)
	fine.register(r)
	first := r.orders("drop", 1)
	stop := r.deliverer(r.store, patient)
	testkit.Eventually(t, patient, "the first to hang", func() bool { n, _, _ := hangs.counts(); return n == 1 })
	ids := append(first, r.orders("drop", 30)...)
	fine.wait(31)
	wantSubjects(t, fine.subjects(), ids)
	if n, _, _ := hangs.counts(); n != 1 {
		t.Errorf("%d events were sent to the one that hangs, want 1", n)
	}
	release()
	hangs.wait(31)
	wantSubjects(t, hangs.subjects(), ids)
	stop()
}

// TestGivingUp: an endpoint that has failed for a day is disabled, and resumes where it stopped once it is enabled.
func TestGivingUp(t *testing.T) {
	r := newRig(t)
	r.sale("drop", 100)
	in := newReceiver(t)
	var mu sync.Mutex
	status := 500
	answer := func(s int) { mu.Lock(); defer mu.Unlock(); status = s }
	in.answer = func(_ int, w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.WriteHeader(status)
	}
	e := in.register(r, webhook.TypeOrderConfirmed)
	ids := r.orders("drop", 3)
	r.deliverer(r.store, patient)
	testkit.Eventually(t, patient, "some failures", func() bool { return r.endpoint(e.ID).Attempts >= 3 })
	got := r.endpoint(e.ID)
	if got.Disabled() || got.LastError != "the receiver answered 500" || got.FailingSince.IsZero() {
		t.Fatalf("got %+v", got)
	}
	r.exec(`update endpoints set failing_since = now() - interval '24 hours'`)
	testkit.Eventually(t, patient, "it to be disabled", func() bool { got := r.endpoint(e.ID); return got.Disabled() })
	reason := r.endpoint(e.ID).DisabledReason
	if !strings.Contains(reason, "failed since") || !strings.Contains(reason, "answered 500") {
		t.Errorf("the reason is %q", reason)
	}
	answer(200)
	ids = append(ids, r.orders("drop", 2)...) // pending as well
	_, err := r.endpoints.EnableEndpoint(t.Context(), "ann", e.ID, false)
	must(t, err)
	in.wait(5)
	wantSubjects(t, in.subjects(), ids)

	answer(410)
	ids = append(ids, r.orders("drop", 2)...)
	testkit.Eventually(t, patient, "it to be gone", func() bool { got := r.endpoint(e.ID); return got.Disabled() })
	if got := r.endpoint(e.ID); got.DisabledReason != "the receiver answered 410" {
		t.Errorf("the reason is %q", got.DisabledReason)
	}
	answer(200)
	_, err = r.endpoints.EnableEndpoint(t.Context(), "ann", e.ID, true) // the operator skips the first of the two
	must(t, err)
	in.wait(6)
	wantSubjects(t, in.subjects(), append(ids[:5:5], ids[6]))
}

// TestStopReturnsSoon: when asked to stop, a deliverer waits for a receiver that hangs for a moment only; it counts
// that as no failure, and frees the endpoint.
func TestStopReturnsSoon(t *testing.T) {
	r := newRig(t)
	r.sale("drop", 100)
	in := newReceiver(t)
	in.answer = func(n int, w http.ResponseWriter, request *http.Request) {
		if n == 1 {
			<-request.Context().Done() // until the sender cuts it off
			return
		}
		w.WriteHeader(http.StatusOK)
	}
	e := in.register(r)
	ids := r.orders("drop", 2)
	stop := r.deliverer(r.store, patient)
	testkit.Eventually(t, patient, "the hang", func() bool { n, _, _ := in.counts(); return n == 1 })
	stop()
	if got := r.endpoint(e.ID); got.Attempts != 0 || got.Backlog != 2 {
		t.Errorf("got %+v", got)
	}
	r.deliverer(r.store, patient)
	in.wait(2)
	wantSubjects(t, in.subjects(), ids)
}

// TestTestEvent: an operator sees how a delivery would go, and nothing changes.
func TestTestEvent(t *testing.T) {
	r := newRig(t)
	in := newReceiver(t)
	e := in.register(r)
	result, err := r.endpoints.Test(t.Context(), e.ID)
	must(t, err)
	if result.Outcome != webhook.Delivered || result.Status != 204 || len(in.first) != 1 ||
		in.first[0].Type != webhook.TypeTest {
		t.Errorf("got %+v and %+v", result, in.first)
	}
	elsewhere := newReceiver(t)
	in.answer = func(_ int, w http.ResponseWriter, request *http.Request) {
		http.Redirect(w, request, elsewhere.server.URL, http.StatusTemporaryRedirect)
	}
	result, err = r.endpoints.Test(t.Context(), e.ID)
	must(t, err)
	n, _, _ := elsewhere.counts()
	if result.Outcome != webhook.Refused || !strings.Contains(result.Error, "redirects") || n != 0 {
		t.Errorf("got %+v, and %d requests elsewhere", result, n)
	}
	in.server.Close()
	result, err = r.endpoints.Test(t.Context(), e.ID)
	must(t, err)
	if result.Outcome != webhook.Failed || strings.Contains(result.Error, "token") ||
		!strings.Contains(result.Error, "refused") {
		t.Errorf("got %+v", result)
	}
	if got := r.endpoint(e.ID); got.Attempts != 0 || !got.DeliveredAt.IsZero() {
		t.Errorf("a test changed the endpoint: %+v", got)
	}
	if _, err := r.endpoints.Test(t.Context(), 99); err == nil {
		t.Error("tested what is not there")
	}
}

// TestNobodyInsideIsReached: with the safe policy no connection is made to this machine, under any name.
func TestNobodyInsideIsReached(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must(t, err)
	for _, policy := range []webhook.Policy{{}, allowPrivate} {
		for _, host := range []string{"127.0.0.1", "localhost", "::ffff:127.0.0.1", "0.0.0.0"} {
			conn, err := webhook.Dial(t.Context(), policy, net.JoinHostPort(host, port))
			if err == nil {
				conn.Close()
			}
			if allowed := err == nil; allowed != policy.AllowPrivate {
				t.Errorf("%s with %+v: got %v", host, policy, err)
			}
			if err != nil && (!strings.Contains(err.Error(), "WEBHOOK_ALLOW_PRIVATE") ||
				host == "localhost" && strings.Contains(err.Error(), "127.0.0.1 is")) {
				t.Errorf("%s: the error is %q", host, err)
			}
		}
	}
}
