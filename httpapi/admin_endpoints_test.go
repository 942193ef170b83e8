package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"sluice/internal/view"
	"sluice/webhook"
)

func giveEndpoints(r *adminRig) {
	created := r.expect(post("endpoints", `{"url":"http://127.0.0.1:1/hook","types":["order.paid"]}`), 201, "")
	if got := created.header.Get("Location"); got != "/admin/v1/endpoints/1" {
		r.t.Errorf("got Location %q", got)
	}
	r.expect(post("endpoints", `{"url":"http://127.0.0.1:1/hook"}`), 409, "conflict")
	r.expect(post("endpoints", `{}`), 400, "invalid-request")
	r.expect(post("endpoints", strings.Repeat(" ", 70_000)), 413, "too-large")
	r.expect(post("endpoints", "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
	r.expect(ask("GET", "endpoints", ""), 200, "")
	r.expect(ask("GET", "endpoints/1", ""), 200, "")
	r.expect(ask("GET", "endpoints/99", ""), 404, "unknown-endpoint")
	r.expect(ask("GET", "endpoints/x", ""), 404, "unknown-endpoint")
	for _, change := range []string{"disable", "enable", "rotate", "test"} {
		r.expect(post("endpoints/1/"+change, ""), 200, "")
		r.expect(post("endpoints/99/"+change, ""), 404, "unknown-endpoint")
		r.expect(post("endpoints/1/"+change, `{"bogus":1}`), 400, "invalid-request")
		r.expect(post("endpoints/1/"+change, strings.Repeat(" ", 70_000)), 413, "too-large")
		r.expect(post("endpoints/1/"+change, "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
	}
	r.expect(post("endpoints/1/rotate", `{"keep_seconds":604801}`), 400, "invalid-request")
	r.expect(post("endpoints/1/rotate", `{"keep_seconds":60}`), 409, "conflict")
	giveHistory(r)
	r.expect(ask("DELETE", "endpoints/1", "").with("X-Reason", "a\x80"), 400, "invalid-request")
	r.expect(ask("DELETE", "endpoints/1", strings.Repeat(" ", 70_000)).with(key, "large"), 413, "too-large")
	r.expect(ask("DELETE", "endpoints/1", ""), 204, "")
	r.expect(ask("DELETE", "endpoints/1", ""), 404, "unknown-endpoint")
	gone := post("endpoints", `{"url":"http://127.0.0.1:1/gone"}`).with(key, "gone")
	r.expect(ask("DELETE", strings.TrimPrefix(r.expect(gone, 201, "").header.Get("Location"), "/admin/v1/"), ""), 204, "")
	r.expect(gone, 404, "unknown-endpoint")
}

// TestAdminEndpoints is the life of an endpoint over HTTP.
func TestAdminEndpoints(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request,
	) {
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(receiver.Close)
	for body, says := range map[string]string{
		`{"url":"https://ann:pw@example.com/"}`:                         "leave out user",
		`{"url":"ftp://example.com/"}`:                                  "not https",
		`{"url":"https://example.com/","types":["order.lost"]}`:         "order.lost",
		`{"url":"https://example.com/","types":"order.paid"}`:           "types: it must be a list of strings",
		`{"types":["order.paid"]}`:                                      "url: it is required",
		`{"url":"https://example.com/","types":["x","x"],"secret":"s"}`: "this field is not known",
	} {
		if got := r.expect(post("endpoints", body), 400, "invalid-request"); !strings.Contains(string(got.body), says) {
			t.Errorf("%s: got %s, want %q", body, got.body, says)
		}
	}
	created := decode[view.Endpoint](t,
		r.expect(post("endpoints", `{"url":"`+receiver.URL+`"}`).with("Authorization", r.as("zoe")), 201, ""))
	if !strings.HasPrefix(created.Secret, "whsec_") || created.State != "active" || created.ID != "1" {
		t.Errorf("created: got %+v", created)
	}
	tested := decode[view.Delivery](t, r.expect(post("endpoints/1/test", ""), 200, ""))
	if tested.Result != "refused" || tested.Status == nil || *tested.Status != http.StatusTeapot || tested.Error == nil {
		t.Errorf("tested: got %+v", tested)
	}
	for _, c := range []call{
		ask("GET", "endpoints/1", ""), ask("GET", "endpoints", ""), post("endpoints/1/disable", ""),
		post("endpoints/1/enable", `{"skip_next":true}`),
	} {
		if got := r.expect(c, 200, ""); strings.Contains(string(got.body), "whsec") {
			t.Errorf("%s shows the secret: %s", c.path, got.body)
		}
	}
	rotate := post("endpoints/1/rotate", `{"keep_seconds":3600}`).with(key, "rotate")
	rotated := decode[view.Endpoint](t, r.expect(rotate, 200, ""))
	if !strings.HasPrefix(rotated.Secret, "whsec_") || rotated.Secret == created.Secret {
		t.Error("the secret is the one before, or is not shown")
	}
	if again := decode[view.Endpoint](t, r.expect(rotate, 200, "")); again.Secret != rotated.Secret {
		t.Error("the same request made another secret")
	}
	if got := r.expect(post("endpoints/1/enable", `{"skip_next":1}`), 400,
		"invalid-request"); !strings.Contains(string(got.body), "true or false") {
		t.Errorf("got %s", got.body)
	}
	r.expect(ask("DELETE", "endpoints/1", ""), 204, "")
	conn, err := pgx.Connect(t.Context(), r.database)
	must(t, err)
	defer func() { must(t, conn.Close(t.Context())) }()
	var log string
	must(t, conn.QueryRow(t.Context(),
		`select string_agg(actor || ' ' || action, '; ' order by id) from audit_log`).Scan(&log))
	if want := "token:zoe add-endpoint; bootstrap disable-endpoint; bootstrap enable-endpoint; bootstrap rotate-secret; " +
		"bootstrap remove-endpoint"; log != want {
		t.Errorf("the audit log says %q, want %q", log, want)
	}
}

// TestEventsShowTheOrder: the data of an event is what the status call shows at that moment, and the buyer and the
// version besides.
func TestEventsShowTheOrder(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	endpoints := webhook.NewEndpointService(r.store.EndpointRegistry(), webhook.Policy{}, nil)
	_, err := endpoints.Add(t.Context(), "ann", "https://example.com/", nil)
	must(t, err)
	sale := newSale("drop-1", 10)
	sale.PaymentWindow = 0
	created := r.create(sale)
	accepted := decode[receipt](t, r.public.expect(order("drop-1", "ann", ""), 202, ""))
	r.persist(created)
	path := "/v1/sales/drop-1/orders/" + accepted.OrderID
	compare := func(eventType string) {
		t.Helper()
		shown := decode[map[string]any](t, r.public.expect(get(path, "ann"), 200, ""))
		_, err := r.worker().SequenceEvents(t.Context(), 100)
		must(t, err)
		events, err := r.store.NextEvents(t.Context(), 0, nil, 100)
		must(t, err)
		last := events[len(events)-1]
		if last.Type != eventType || last.OrderID != accepted.OrderID {
			t.Fatalf("got %+v, want %s", last, eventType)
		}
		var data map[string]any
		must(t, json.Unmarshal(last.Data, &data))
		if data["user_id"] != "ann" || data["version"] == nil {
			t.Errorf("got %s, want the buyer and the version", last.Data)
		}
		delete(data, "user_id")
		delete(data, "version")
		if !reflect.DeepEqual(data, shown) {
			t.Errorf("the event says %v, the status %v", data, shown)
		}
	}
	compare(webhook.TypeOrderConfirmed)
	r.public.expect(cancel(path, "ann"), 200, "")
	compare(webhook.TypeOrderCancelled)
}
