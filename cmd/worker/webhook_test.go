package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/internal/testkit"
	"sluice/webhook"
)

// receiver is an endpoint of events that keeps the id of each when it arrives first.
type receiver struct {
	t    *testing.T
	hook *standardwebhooks.Webhook

	mu    sync.Mutex // protects the rest
	first []string
	again int
}

func (e *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender died
	}
	if err := e.hook.Verify(body, r.Header); err != nil {
		e.t.Errorf("the signature does not hold: %v", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if id := r.Header.Get("webhook-id"); slices.Contains(e.first, id) {
		e.again++
	} else {
		e.first = append(e.first, id)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (e *receiver) received() (first []string, again int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.first), e.again
}

// TestKillTheDeliverer: the worker that delivers events is killed in the middle. Another one goes on once the lease of
// the dead one is over; every event arrives, and the first arrivals are in the order of positions.
func TestKillTheDeliverer(t *testing.T) {
	t.Parallel()
	const buyers = 400
	s := newSite(t, buyers) // every order is confirmed at once
	endpoint := &receiver{t: t}
	server := httptest.NewServer(endpoint)
	t.Cleanup(server.Close)
	types := []string{webhook.TypeOrderConfirmed, webhook.TypeSaleSoldOut}
	endpoints := webhook.NewEndpointService(s.store.EndpointRegistry(), webhook.Policy{AllowPrivate: true}, nil)
	e, err := endpoints.Add(t.Context(), "test",
		server.URL, types)
	if err != nil {
		t.Fatal(err)
	}
	if endpoint.hook, err = standardwebhooks.NewWebhook(e.Secret); err != nil {
		t.Fatal(err)
	}
	first := s.startWorker(t, "WEBHOOK_ALLOW_PRIVATE=true")
	testkit.Eventually(t, time.Minute, "the worker has joined", func() bool { return s.joined(t, 1) })
	s.accept(t, buyers)
	testkit.Eventually(t, 2*time.Minute, "some events to arrive",
		func() bool { ids, _ := endpoint.received(); return len(ids) >= 20 })
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	early, _ := endpoint.received()
	s.startWorker(t, "WEBHOOK_ALLOW_PRIVATE=true")
	testkit.Eventually(t, 2*time.Minute, "the stream is settled", func() bool { return s.settled(t) })
	testkit.Eventually(t, 2*time.Minute, "all events to arrive",
		func() bool { ids, _ := endpoint.received(); return len(ids) >= buyers+1 })
	received, again := endpoint.received()
	t.Logf("%d events had arrived when the worker was killed; %d came again", len(early), again)
	events, err := s.store.NextEvents(t.Context(), 0, types, 2*buyers)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, e := range events {
		if e.Data != nil { // one of the types that were chosen
			want = append(want, e.ID)
		}
	}
	if !slices.Equal(received, want) || len(want) != buyers+1 {
		t.Errorf("%d events arrived in another order than that of the %d positions", len(received), len(want))
	}
}
