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

// ear is a receiver of events that keeps the id of each when it arrives first.
type ear struct {
	t    *testing.T
	hook *standardwebhooks.Webhook

	mu    sync.Mutex // protects the rest
	first []string
	again int
}

func (e *ear) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

func (e *ear) heard() (first []string, again int) {
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
	receiver := &ear{t: t}
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)
	e, err := webhook.NewEndpointService(s.store, webhook.Policy{AllowPrivate: true}).Add(t.Context(), "test",
		server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if receiver.hook, err = standardwebhooks.NewWebhook(e.Secret); err != nil {
		t.Fatal(err)
	}
	first := s.startWorker(t, "WEBHOOK_ALLOW_PRIVATE=true")
	testkit.Eventually(t, time.Minute, "the worker has joined", func() bool { return s.joined(t, 1) })
	s.accept(t, buyers)
	testkit.Eventually(t, 2*time.Minute, "some events to arrive",
		func() bool { ids, _ := receiver.heard(); return len(ids) >= 20 })
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	early, _ := receiver.heard()
	s.startWorker(t, "WEBHOOK_ALLOW_PRIVATE=true")
	testkit.Eventually(t, 2*time.Minute, "the stream is settled", func() bool { return s.settled(t) })
	testkit.Eventually(t, 2*time.Minute, "all events to arrive",
		func() bool { ids, _ := receiver.heard(); return len(ids) >= buyers+1 })
	heard, again := receiver.heard()
	t.Logf("%d events had arrived when the worker was killed; %d came again", len(early), again)
	events, err := s.store.NextEvents(t.Context(), 0, nil, 2*buyers)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, e := range events {
		want = append(want, e.ID)
	}
	if !slices.Equal(heard, want) || len(want) != buyers+1 {
		t.Errorf("%d events arrived in another order than that of the %d positions", len(heard), len(want))
	}
}
