package httpapi_test

import (
	"strings"
	"testing"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/webhook"
)

// giveHistory gives every answer about the events that endpoint 1 gets once more. It has none so far.
func giveHistory(r *adminRig) {
	r.expect(ask("GET", "events", ""), 200, "")
	for _, wrong := range []string{"limit=0", "after=x", "sale=A", "order=7", "type=order.lost", "event=x", "since=soon"} {
		r.expect(ask("GET", "events?"+wrong, ""), 400, "invalid-request")
	}
	r.expect(post("endpoints/1/resend", `{"from":1}`), 202, "")
	r.expect(post("endpoints/1/resend", `{"event_id":"01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f"}`), 409, "conflict")
	r.expect(post("endpoints/1/replay", `{"from":1}`), 409, "conflict")
	for _, change := range []string{"resend", "replay"} {
		r.expect(post("endpoints/1/"+change, `{}`), 400, "invalid-request")
		r.expect(post("endpoints/1/"+change, `{"from":-1}`), 400, "invalid-request")
		r.expect(post("endpoints/99/"+change, `{"from":1}`), 404, "unknown-endpoint")
		r.expect(post("endpoints/1/"+change, strings.Repeat(" ", 70_000)), 413, "too-large")
		r.expect(post("endpoints/1/"+change, "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
	}
	r.exec(`insert into outbox (type, sale_id, data, position) values ('sale.paused', 'drop-1', '{}', 1000)`)
	r.exec(`update endpoints set cursor = 1000`)
	r.expect(post("endpoints/1/replay", `{"from":1000}`), 200, "")
}

// TestAdminEventHistory: the events of a sale and of an order, page by page; and what is asked to be sent once more.
func TestAdminEventHistory(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	endpoints := webhook.NewEndpointService(r.store.EndpointRegistry(), webhook.Policy{}, nil)
	_, err := endpoints.Add(t.Context(), "ann", "https://example.com/", nil)
	must(t, err)
	sale := r.create(newSale("drop-1", 10))
	accepted := decode[receipt](t, r.public.expect(order("drop-1", "ann", ""), 202, ""))
	r.persist(sale)
	r.public.expect(cancel("/v1/sales/drop-1/orders/"+accepted.OrderID, "ann"), 200, "")
	r.setState("drop-1", pipeline.SalePaused)
	_, err = r.worker().SequenceEvents(t.Context(), 100)
	must(t, err)

	type page struct {
		Events []view.Event
		Next   *string `json:"next_after"`
	}
	var types []string
	var last view.Event
	for after := "0"; after != ""; {
		got := decode[page](t, r.expect(ask("GET", "events?sale=drop-1&limit=3&after="+after, ""), 200, ""))
		after = ""
		for _, e := range got.Events {
			types, last = append(types, e.Type), e
		}
		if got.Next != nil {
			after = *got.Next
		}
	}
	want := "sale.created order.awaiting_payment order.cancelled sale.paused"
	if got := strings.Join(types, " "); got != want {
		t.Errorf("history: got %s, want %s", got, want)
	}
	for query, want := range map[string]int{
		"order=" + accepted.OrderID: 2, "type=sale.paused": 1, "event=" + last.ID: 1, "since=2100-01-01T00:00:00Z": 0,
		"until=2100-01-01T00:00:00Z": 4, "sale=drop-2": 0, "type=order.cancelled&order=" + accepted.OrderID: 1,
	} {
		if got := decode[page](t, r.expect(ask("GET", "events?"+query, ""), 200, "")); len(got.Events) != want {
			t.Errorf("%s: got %d events, want %d", query, len(got.Events), want)
		}
	}

	r.exec(`update endpoints set cursor = 3`)
	resend := func(body string, want int) {
		t.Helper()
		got := decode[view.Resent](t, r.expect(post("endpoints/1/resend", body), 202, ""))
		if got.Events != want || got.NextFrom != nil {
			t.Errorf("%s: got %+v, want %d events", body, got, want)
		}
	}
	resend(`{"from":1}`, 3) // it has not passed the fourth
	resend(`{"from":1,"to":2}`, 2)
	resend(`{"from":1,"order_id":"`+accepted.OrderID+`","type":"order.cancelled"}`, 1)
	r.expect(post("endpoints/1/resend", `{"event_id":"`+last.ID+`"}`), 409, "conflict")
	for range 2 { // a call whose answer was lost
		r.expect(post("endpoints/1/replay", `{"from":2}`).with("Authorization", r.as("zoe")), 200, "")
	}
	refused := r.expect(post("endpoints/1/replay", `{"from":4}`), 409, "conflict").problem()
	if !strings.Contains(refused.Detail, "use 1, the oldest") {
		t.Errorf("got %q", refused.Detail)
	}
}
