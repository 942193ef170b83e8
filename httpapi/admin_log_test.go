package httpapi_test

import (
	"fmt"
	"testing"

	"sluice/internal/view"
)

type logPage struct {
	Entries   []view.LogEntry
	NextAfter *string `json:"next_after"`
}

func giveLog(r *adminRig) {
	r.expect(ask("GET", "log", ""), 200, "")
	r.expect(ask("GET", "log?action=No", ""), 400, "invalid-request")
}

// TestTheAuditLogIsRead: who did what, when, and what it was before, the newest line first.
func TestTheAuditLogIsRead(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	ann, _ := r.paidOrders("drop-1")
	r.expect(post("sales/drop-1/restock", `{"add":5}`).with("X-Actor", "eve"), 200, "")
	r.expect(post(orderCall(ann, "return"), moneyChanges["return"]).with("X-Actor", "eve"), 200, "")
	r.expect(post("payments/"+r.due()[0].ID+"/refunded", "").with("X-Actor", "ned"), 200, "")
	read := func(query string) []string {
		t.Helper()
		var lines []string
		for _, e := range decode[logPage](t, r.expect(ask("GET", "log?"+query, ""), 200, "")).Entries {
			lines = append(lines, e.Actor+" "+e.Action)
		}
		return lines
	}
	for query, want := range map[string]string{
		"":                                     "[ned refund eve return eve restock sluice create]",
		"actor=eve":                            "[eve return eve restock]",
		"action=restock":                       "[eve restock]",
		"sale=drop-1&limit=2":                  "[ned refund eve return]",
		"sale=drop-2":                          "[]",
		"order=" + ann.OrderID:                 "[ned refund eve return]",
		"payment=" + r.paidRow(t):              "[ned refund]",
		"endpoint=7":                           "[]",
		"dead_letter=7":                        "[]",
		"until=2020-01-01T00:00:00Z&actor=eve": "[]",
		"since=2020-01-01T00:00:00Z&actor=ned": "[ned refund]",
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
		"limit=501", "after=0", "actor=%01", "action=No", "sale=No", "order=7", "payment=0", "endpoint=x", "since=now",
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
