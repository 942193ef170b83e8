package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"sluice/internal/view"
)

type logPage struct {
	Entries   []view.LogEntry
	NextAfter *string `json:"next_after"`
}

// TestReasons: what a request says of why is in the lines that it leaves, beside what was there before and after, and
// in no line of a later request on the same connection.
func TestReasons(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	r.expect(post("sales", `{"id":"drop-1","total":5}`), 201, "")
	why := post("sales/drop-1/restock", `{"add":5}`).with("X-Reason", "more lamps came")
	r.expect(why, 200, "")
	r.expect(why.with("Idempotency-Key", "k1").with("X-Reason", "and more"), 200, "")
	r.expect(post("sales/drop-1/restock", `{"add":1}`), 200, "")
	var got string
	r.scan(`select string_agg(coalesce(detail ->> 'reason', 'none') || ' ' || (detail #>> '{before,total}') || ' ' ||
		(detail #>> '{after,total}'), '; ' order by id) from audit_log where action = 'restock'`, &got)
	if want := "more lamps came 5 10; and more 10 15; none 15 16"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.expect(why.with("X-Reason", strings.Repeat("x", 1001)), 400, "invalid-request")
}

func giveLog(r *adminRig) {
	r.expect(ask("GET", "log", ""), 200, "")
	r.expect(ask("GET", "log?action=No", ""), 400, "invalid-request")
	r.expect(ask("GET", "erasures", ""), 200, "")
	r.expect(ask("GET", "erasures?after=x", ""), 400, "invalid-request")
	r.expect(post("erasures", `{"user_id":"zoe"}`), 202, "")
	r.expect(post("erasures", `{"user_id":""}`), 400, "invalid-request")
	r.expect(post("erasures", `{"user_id":"`+strings.Repeat("x", 1<<20)+`"}`), 413, "too-large")
	r.expect(ask("GET", "retention", ""), 200, "")
	r.expect(ask("GET", "retention?limit=0", ""), 400, "invalid-request")
}

// TestTheAuditLogIsRead: who did what, when, and what it was before, the newest line first.
func TestTheAuditLogIsRead(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	ann, _ := r.paidOrders("drop-1")
	r.expect(post("sales/drop-1/restock", `{"add":5}`).with("Authorization", r.as("eve")), 200, "")
	r.expect(post(orderCall(ann, "return"), moneyChanges["return"]).with("Authorization", r.as("eve")), 200, "")
	r.expect(post("payments/"+r.due()[0].ID+"/refunded", "").with("Authorization", r.as("ned")), 200, "")
	read := func(query string) []string {
		t.Helper()
		var lines []string
		for _, e := range decode[logPage](t, r.expect(ask("GET", "log?"+query, ""), 200, "")).Entries {
			lines = append(lines, e.Actor+" "+e.Action)
		}
		return lines
	}
	for query, want := range map[string]string{
		"":                        "[token:ned refund token:eve return token:eve restock sluice create]",
		"actor=token:eve":         "[token:eve return token:eve restock]",
		"action=restock":          "[token:eve restock]",
		"sale=drop-1&limit=2":     "[token:ned refund token:eve return]",
		"sale=drop-2":             "[]",
		"order=" + ann.OrderID:    "[token:ned refund token:eve return]",
		"payment=" + r.paidRow(t): "[token:ned refund]",
		"endpoint=7":              "[]",
		"dead_letter=7":           "[]",
		"until=2020-01-01T00:00:00Z&actor=token:eve": "[]",
		"since=2020-01-01T00:00:00Z&actor=token:ned": "[token:ned refund]",
	} {
		if got := fmt.Sprint(read(query)); got != want {
			t.Errorf("%q: got %s, want %s", query, got, want)
		}
	}
	page := decode[logPage](t, r.expect(ask("GET", "log?limit=3", ""), 200, ""))
	if page.NextAfter == nil || fmt.Sprint(read("after="+*page.NextAfter)) != "[sluice create]" {
		t.Errorf("the page after %v: got %v", page.NextAfter, read("after="+*page.NextAfter))
	}
	refunded, returned, restocked := page.Entries[0], page.Entries[1], page.Entries[2]
	created := decode[logPage](t, r.expect(ask("GET", "log?action=create", ""), 200, "")).Entries[0]
	for _, say := range []struct{ got, want string }{
		{field(t, restocked.Before, "total"), "5"},
		{field(t, restocked.After, "total"), "10"},
		{field(t, returned.Before, "status"), "paid"},
		{field(t, returned.After, "status"), "returned"},
		{field(t, returned.Detail, "reason"), "broken"},
		{field(t, refunded.Before, "outcome"), "refund_due"},
		{field(t, refunded.After, "refunded_amount"), "1999"},
		{field(t, created.After, "total"), "5"},
		{string(created.Before), "null"},
		{*created.SaleID, "drop-1"},
	} {
		if say.got != say.want {
			t.Errorf("got %q, want %q", say.got, say.want)
		}
	}
	for _, query := range []string{
		"limit=501", "after=0", "actor=%01", "action=No", "sale=No", "order=7", "order=urn:uuid:" + ann.OrderID,
		"order={" + ann.OrderID + "}", "payment=0", "endpoint=x", "since=now",
		"since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z",
	} {
		r.expect(ask("GET", "log?"+query, ""), 400, "invalid-request")
	}
}

// paidRow is the payment that was paid back.
func (r *adminRig) paidRow(t *testing.T) string {
	t.Helper()
	list := decode[paymentList](t, r.expect(ask("GET", "payments?outcome=refunded", ""), 200, "")).Payments
	return list[0].ID
}

// field is a member of an object.
func field(t *testing.T, object []byte, name string) string {
	t.Helper()
	value, err := jsonValue(object)
	must(t, err)
	members, _ := value.(map[string]any)
	return fmt.Sprint(members[name])
}

// TestTheAdminLogNamesTheClient: a line of the operations side says where its request came from.
func TestTheAdminLogNamesTheClient(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	got := r.do(get("/admin/v1/sales", "").with("X-Forwarded-For", "203.0.113.7"))
	if line := r.logLine(t, got.header.Get("X-Request-Id")); line["client"] != "127.0.0.1" {
		t.Errorf("got log %v, want the client", line)
	}
}
