package httpapi_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/internal/view"
)

type orderPage struct {
	Orders    []view.Order
	NextAfter *string `json:"next_after"`
}

func giveOrderList(r *adminRig) {
	r.expect(ask("GET", "orders", ""), 200, "")
	r.expect(ask("GET", "orders?limit=0", ""), 400, "invalid-request")
	r.expect(ask("GET", "orders/export", ""), 200, "")
	r.expect(ask("GET", "orders/export?format=xlsx", ""), 400, "invalid-request")
}

// TestOrdersAreListedAndFound: whatever operators know of an order leads to it, in the JSON that orders have elsewhere.
func TestOrdersAreListedAndFound(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	ann, bob := r.paidOrders("drop-1")
	r.create(newSale("drop-2", 5))
	again := r.public.place("drop-2", "ann", "")
	r.persist(r.stored("drop-2"))
	r.expect(post(orderCall(ann, "return"), moneyChanges["return"]), 200, "")
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for query, want := range map[string][]receipt{
		"":                                      {again, bob, ann},
		"sale=drop-1":                           {bob, ann},
		"sale=drop-2":                           {again},
		"order=" + bob.OrderID:                  {bob},
		"order=" + bob.OrderID + "&sale=drop-2": nil,
		"number=" + ann.OrderNumber:             {ann},
		"buyer=ann":                             {again, ann},
		"buyer=ann&sale=drop-1":                 {ann},
		"buyer=ann&status=returned":             {ann},
		"status=awaiting_payment":               {again, bob},
		"status=returned,awaiting_payment":      {again, bob, ann},
		"payment_id=double_drop-1":              {ann},
		"payment_id=nothing":                    nil,
		"payment=refund_due":                    {ann},
		"payment=paid":                          nil,
		"since=" + future:                       nil,
		"until=" + future + "&sale=drop-1":      {bob, ann},
		"since=2020-01-01T00:00:00Z":            {again, bob, ann},
		"until=2020-01-01T00:00:00Z":            nil,
	} {
		got := decode[orderPage](t, r.expect(ask("GET", "orders?"+query, ""), 200, ""))
		if !slices.EqualFunc(got.Orders, want, func(v view.Order, o receipt) bool { return v.OrderID == o.OrderID }) ||
			got.NextAfter != nil {
			t.Errorf("%q: got %+v, want %+v", query, got, want)
		}
	}
	returned := decode[view.Order](t, r.expect(post(orderCall(ann, "return"), moneyChanges["return"]), 200, ""))
	listed := decode[orderPage](t, r.expect(ask("GET", "orders?number="+ann.OrderNumber, ""), 200, "")).Orders
	if len(listed) != 1 || text(t, listed[0]) != text(t, returned) {
		t.Errorf("listed as %s, returned as %s", text(t, listed), text(t, returned))
	}
	for _, query := range []string{
		"sale=No", "order=7", "number=x", "number=0", "buyer=a%20b", "status=lost", "status=queued", "payment=refused",
		"since=yesterday", "since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z",
	} {
		r.expect(ask("GET", "orders?"+query, ""), 400, "invalid-request")
		r.expect(ask("GET", "orders/export?"+query, ""), 400, "invalid-request")
	}
	r.expect(ask("GET", "orders?limit=1001", ""), 400, "invalid-request")
	r.expect(ask("GET", "orders?after=x", ""), 400, "invalid-request")
}

func text(t *testing.T, v any) string {
	t.Helper()
	body, err := json.Marshal(v)
	must(t, err)
	return string(body)
}

// TestOrderPagesFollowEachOther: each order is on one page, also while others are accepted.
func TestOrderPagesFollowEachOther(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	sale := r.create(newSale("drop-1", 100))
	var want []string
	for i := range 7 {
		want = append(want, r.public.place("drop-1", fmt.Sprintf("buyer-%d", i), "").OrderID)
	}
	r.persist(sale)
	slices.Reverse(want)
	for _, choice := range []string{"sale=drop-1", "status=awaiting_payment"} {
		var got []string
		after := ""
		for page := 0; ; page++ {
			answer := decode[orderPage](t, r.expect(ask("GET", "orders?limit=3&"+choice+"&after="+after, ""), 200, ""))
			for _, o := range answer.Orders {
				got = append(got, o.OrderID)
			}
			r.public.place("drop-1", fmt.Sprintf("late-%s-%d", choice[:4], page), "")
			r.persist(sale)
			if answer.NextAfter == nil {
				break
			}
			after = *answer.NextAfter
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", choice, got, want)
		}
		want = nil // the late ones come first now
		for _, o := range decode[orderPage](t, r.expect(ask("GET", "orders?"+choice, ""), 200, "")).Orders {
			want = append(want, o.OrderID)
		}
	}
}

// TestExportOfOrders: both formats say the same, and no buyer's id is a formula.
func TestExportOfOrders(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	sale := r.create(pricedSale("drop-1", 50))
	buyers := []string{`=HYPERLINK("http://evil.example","x")`, "+49151", "-1", "@SUM(A1)", "'quoted", `a"b,c`, "ann", "＝1"}
	for _, buyer := range buyers {
		r.public.place("drop-1", buyer, "")
	}
	r.persist(sale)
	answer := r.expect(ask("GET", "orders/export?sale=drop-1&format=csv", ""), 200, "")
	rows, err := csv.NewReader(strings.NewReader(string(answer.body))).ReadAll()
	must(t, err)
	lines := strings.Split(strings.TrimSpace(
		string(r.expect(ask("GET", "orders/export?format=jsonl", ""), 200, "").body)), "\n")
	if len(rows) != len(buyers)+1 || len(lines) != len(buyers) || rows[0][3] != "user_id" || rows[0][5] != "amount" {
		t.Fatalf("got %d rows and %d lines, %v", len(rows), len(lines), rows[0])
	}
	for i, line := range lines {
		var v view.Order
		must(t, json.Unmarshal([]byte(line), &v))
		cell, buyer := rows[i+1][3], buyers[len(buyers)-1-i]
		if v.UserID != buyer || strings.TrimPrefix(cell, "'") != buyer {
			t.Errorf("got %q and %q, want %q", v.UserID, cell, buyer)
		}
		if strings.ContainsAny(cell[:1], "=+-@＝") {
			t.Errorf("%q would be run", cell)
		}
		if rows[i+1][0] != v.OrderID || rows[i+1][5] != "1999" || rows[i+1][9] != v.AcceptedAt {
			t.Errorf("the formats differ: %v and %s", rows[i+1], line)
		}
	}
	if got := answer.header.Get("Content-Disposition"); !strings.Contains(got, "orders.csv") {
		t.Errorf("got Content-Disposition %q", got)
	}
}

// TestABrokenExportShows: a client can tell that the rest is missing, by the answer without an end and by its last
// line.
func TestABrokenExportShows(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	sale := r.create(newSale("drop-1", 1_000_000))
	r.fill(sale.ID, 60_000)
	for format, says := range map[string]string{"csv": "INCOMPLETE,", "jsonl": `{"incomplete":`} {
		testkit.Eventually(t, time.Minute, "Postgres to answer again",
			func() bool { return r.do(ask("GET", "orders", "")).status == http.StatusOK })
		request, err := http.NewRequest(http.MethodGet, "http://"+r.address+"/admin/v1/orders/export?format="+format, nil)
		must(t, err)
		request.Header.Set("Authorization", "Bearer "+adminToken)
		response, err := r.client.Do(request)
		must(t, err)
		first := make([]byte, 1000)
		_, err = response.Body.Read(first)
		must(t, err)
		r.postgres.Cut()
		rest, err := io.ReadAll(response.Body)
		response.Body.Close()
		r.postgres.Heal()
		if err == nil {
			t.Errorf("%s: %d bytes came, and the answer had an end", format, len(rest))
		}
		lines := strings.Split(strings.TrimSpace(string(rest)), "\n")
		if last := lines[len(lines)-1]; !strings.HasPrefix(last, says) {
			t.Errorf("%s: the last line is %q, want %s", format, last, says)
		}
	}
}

// fill stores so many orders of a sale, as workers would have.
func (r *adminRig) fill(sale string, orders int) {
	r.t.Helper()
	r.exec(fmt.Sprintf(`
		insert into orders (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, status)
		select '%s', gen_random_uuid(), i, 'u' || i, 1, 1, i, now() - i * interval '1ms', 'confirmed'
		from generate_series(1, %d) i`, sale, orders))
}

// A filter that is not understood, or has no value, must not choose everything.
func TestFiltersThatChooseNothing(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	for path, says := range map[string]string{
		"orders?user_id=ann":        "it is no parameter here: use sale, order, number, buyer",
		"orders?buyer=":             "buyer: it is empty",
		"orders/export?sale=":       "sale: it is empty",
		"orders/export?sale_id=x":   "sale_id: it is no parameter here",
		"payments?sale_id=x":        "sale_id: it is no parameter here",
		"events?sale_id=x":          "sale_id: it is no parameter here",
		"log?bogus=1":               "bogus: it is no parameter here",
		"sales?state=bogus":         "state: it is no parameter here",
		"dead-letters?bogus=1":      "bogus: it is no parameter here",
		"retention?bogus=1":         "bogus: it is no parameter here",
		"erasures?buyer=ann":        "buyer: it is no parameter here",
		"orders?limit=1&after=&x=1": "x: it is no parameter here",
	} {
		if got := r.expect(ask(http.MethodGet, path, ""), 400, "invalid-request"); !strings.Contains(string(got.body), says) {
			t.Errorf("%s: got %s, want %q", path, got.body, says)
		}
	}
}
