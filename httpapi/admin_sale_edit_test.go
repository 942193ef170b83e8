package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/internal/view"
)

func patch(path, body string) call { return ask("PATCH", path, body) }

// giveEdits makes the calls that edit and reduce a sale, with every answer that they have.
func giveEdits(r *adminRig) {
	r.create(newSale("edits", 9))
	r.create(newSale("lost-edits", 9))
	must(r.t, r.rdb.Del(r.t.Context(), r.keys.Sale(r.stored("lost-edits").Partitions[0], "lost-edits")).Err())
	closed := newSale("no-edits", 9)
	r.create(closed)
	r.expect(post("sales/no-edits/close", ""), 200, "")
	for _, send := range []func(sale, body string) call{
		func(sale, body string) call { return patch("sales/"+sale, body) },
		func(sale, body string) call { return post("sales/"+sale+"/reduce", body) },
	} {
		good := `{"title":"Lamp"}`
		if send("x", "").method == "POST" {
			good = `{"to":5}`
		}
		for range 2 {
			r.expect(send("edits", good), 200, "")
		}
		r.expect(send("edits", ""), 400, "invalid-request")
		r.expect(send("edits", good).with("X-Reason", "a\x80"), 400, "invalid-request")
		r.expect(send("none", good), 404, "unknown-sale")
		r.expect(send("no-edits", good), 409, "conflict")
		r.expect(send("edits", strings.Repeat(" ", 70_000)), 413, "too-large")
		r.expect(send("edits", "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
		r.expect(send("lost-edits", good), 503, "sale-not-loaded")
	}
}

// money is what buyers are told of prices.
type money struct {
	Amount    int64
	UnitPrice int64 `json:"unit_price"`
}

// An operator edits a sale over HTTP; buyers see it, and orders cost what was asked when they were asked for.
func TestAdminEdits(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	r.expect(post("sales", `{"id":"drop-1","total":10,"unit_price":1999,"currency":"EUR","note":"a trial"}`), 201, "")
	r.public.reload()
	old := r.public.expect(order("drop-1", "ann", ""), 202, "")
	edited := decode[view.Sale](t, r.expect(patch("sales/drop-1",
		`{"title":"Lamp","max_quantity":2,"unit_price":2499,"waitlist":3,"note":"","if_version":1}`), 200, ""))
	if edited.Title != "Lamp" || edited.MaxQuantity != 2 || *edited.UnitPrice != 2499 || *edited.Currency != "EUR" ||
		edited.Waitlist != 3 || edited.Note != "" || edited.Version != 2 || edited.PriceFrom == nil {
		t.Errorf("edited: got %+v", edited)
	}
	for body, says := range map[string]string{
		`{"title":"x","if_version":1}`: "is at version 2", `{"waitlist":0}`: "use at least 1",
		`{"unit_price":0}`: "not be taken away", `{"title":null}`: "title", `{"if_version":2}`: "it changes nothing",
		`{"if_version":0,"title":"x"}`: "versions begin at 1", `{"state":"closed"}`: "not known",
	} {
		got := r.do(patch("sales/drop-1", body))
		if got.status != 400 && got.status != 409 || !strings.Contains(got.problem().Detail, says) {
			t.Errorf("%s: got %d %q, want %q", body, got.status, got.problem().Detail, says)
		}
	}
	amountOf := func(id, user string) int64 {
		t.Helper()
		return decode[money](t, r.public.expect(get("/v1/sales/drop-1/orders/"+id, user), 200, "")).Amount
	}
	if early := decode[receipt](t, old); amountOf(early.OrderID, "ann") != 1999 {
		t.Errorf("in the stream: got %d", amountOf(early.OrderID, "ann"))
	}
	testkit.Eventually(t, time.Minute, "the new price to be asked", func() bool {
		r.public.reload()
		return decode[money](t, r.public.expect(get("/v1/sales/drop-1", ""), 200, "")).UnitPrice == 2499
	})
	late := r.public.expect(order("drop-1", "bob", ""), 202, "")
	r.public.persist(r.stored("drop-1"))
	for user, want := range map[string]int64{"ann": 1999, "bob": 2499} {
		answer := map[string]reply{"ann": old, "bob": late}[user]
		id := decode[receipt](t, answer).OrderID
		if told := decode[money](t, answer).Amount; told != want || amountOf(id, user) != want {
			t.Errorf("%s was told %d, and owes %d: want %d", user, told, amountOf(id, user), want)
		}
	}
	reduced := decode[view.Sale](t, r.expect(post("sales/drop-1/reduce", `{"to":2}`), 200, ""))
	if reduced.Total != 2 || *reduced.Remaining != 0 || reduced.Phase != "sold_out" {
		t.Errorf("reduced: got %+v", reduced)
	}
	got := r.expect(post("sales/drop-1/reduce", `{"to":1}`), 409, "conflict")
	if want := "2 units of sale drop-1 are taken"; !strings.Contains(got.problem().Detail, want) {
		t.Errorf("got %q, want %q", got.problem().Detail, want)
	}
}
