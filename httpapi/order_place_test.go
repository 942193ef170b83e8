package httpapi_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/httpapi"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
)

func TestOrderIsAccepted(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{admission: admission.Options{Durability: pipeline.DurabilityFsync}})
	r.create(newSale("drop-1", 5))
	before := time.Now().Add(-time.Minute)
	got := r.expect(order("drop-1", "ann", `{"quantity":2}`), 202, "")
	receipt := decode[receipt](t, got)
	if _, err := uuid.Parse(receipt.OrderID); err != nil {
		t.Errorf("order_id: %v", err)
	}
	if receipt.SaleID != "drop-1" || receipt.Quantity != 2 || receipt.Status != "queued" || receipt.Durability != "fsync" {
		t.Errorf("got %s", got.body)
	}
	if receipt.AcceptedAt.Before(before) || receipt.AcceptedAt.Location() != time.UTC {
		t.Errorf("accepted_at: got %s", receipt.AcceptedAt)
	}
	if want := "/v1/sales/drop-1/orders/" + receipt.OrderID; got.header.Get("Location") != want {
		t.Errorf("Location: got %q, want %q", got.header.Get("Location"), want)
	}
}

func TestOneUnitWithoutBody(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 50))
	for i, body := range []string{"", "{}", ` { } `, `{"quantity":1}`, "\t{\n\"quantity\" :\r 1 } "} {
		got := decode[receipt](t, r.expect(order("drop-1", fmt.Sprintf("buyer-%d", i), body), 202, ""))
		if got.Quantity != 1 {
			t.Errorf("body %q: got %d units, want 1", body, got.Quantity)
		}
	}
	for i, contentType := range []string{
		"application/json", "application/json; charset=utf-8",
		"Application/JSON;charset=UTF-8",
	} {
		r.expect(order("drop-1", fmt.Sprintf("typed-%d", i), "{}").with("Content-Type", contentType), 202, "")
	}
	r.expect(order("drop-1", "typed-empty", "").with("Content-Type", "text/plain"), 202, "")
}

func TestSameBuyerTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 5))
	first := r.expect(order("drop-1", "ann", ""), 202, "")
	second := r.expect(order("drop-1", "ann", ""), 409, "already-ordered")
	if got, want := second.problem().OrderID, decode[receipt](t, first).OrderID; got != want {
		t.Errorf("order_id: got %s, want %s", got, want)
	}
	if got, want := second.header.Get("Location"), first.header.Get("Location"); got != want {
		t.Errorf("Location: got %s, want %s", got, want)
	}
	r.expect(order("drop-1", "ann", "").with("Idempotency-Key", "late"), 409, "already-ordered")
}

func TestSameKeySameAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(newSale("drop-1", 5))
	keyed := order("drop-1", "ann", `{"quantity":2}`).with("Idempotency-Key", "a key, with spaces")
	first := r.expect(keyed, 202, "")
	r.persist(sale)
	for _, again := range []call{keyed, order("drop-1", "ann", ` {"quantity" : 2}`).with("Idempotency-Key",
		"a key, with spaces")} {
		got := r.expect(again, 202, "")
		if string(got.body) != string(first.body) || got.header.Get("Location") != first.header.Get("Location") {
			t.Errorf("got %s, want %s", got.body, first.body)
		}
	}
	reused := r.expect(order("drop-1", "ann", `{"quantity":1}`).with("Idempotency-Key", "a key, with spaces"), 422,
		"idempotency-key-reused")
	if got, want := reused.problem().OrderID, decode[receipt](t, first).OrderID; got != want {
		t.Errorf("order_id: got %s, want %s", got, want)
	}
	// A key belongs to its buyer.
	r.expect(order("drop-1", "bob", `{"quantity":1}`).with("Idempotency-Key", "a key, with spaces"), 202, "")
	if left := r.units(sale); left != 2 {
		t.Errorf("stock: got %d, want 2", left)
	}
}

// units is the stock in Redis.
func (r *rig) units(s *pipeline.Sale) int {
	r.t.Helper()
	n, err := r.rdb.HGet(r.t.Context(), r.keys.Sale(s.Partitions[0], s.ID), "stock").Int()
	must(r.t, err)
	return n
}

// TestTheBuyerAfterTheLastUnit: 1,500 buyers at once for 1,000 units. Exactly 1,000 get one, all others get
// sold-out.
func TestTheBuyerAfterTheLastUnit(t *testing.T) {
	t.Parallel()
	const units, buyers, clients = 1000, 1500, 50
	r := newRig(t, rigOptions{})
	sale := r.create(newSale("drop-1", units))
	var (
		mu    sync.Mutex // protects codes
		codes = map[string]int{}
		next  = make(chan int)
		sent  sync.WaitGroup
	)
	for range clients {
		sent.Go(func() {
			for i := range next {
				got, err := r.try(order("drop-1", fmt.Sprintf("buyer-%d", i), ""))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				codes[fmt.Sprint(got.status, got.code())]++
				mu.Unlock()
			}
		})
	}
	for i := range buyers {
		next <- i
	}
	close(next)
	sent.Wait()
	if codes["202"] != units || codes["409sold-out"] != buyers-units {
		t.Errorf("got %v, want 202 for %d and sold-out for %d", codes, units, buyers-units)
	}
	r.expect(order("drop-1", "one-more", ""), 409, "sold-out")
	if left := r.units(sale); left != 0 {
		t.Errorf("stock: got %d, want 0", left)
	}
	events, err := r.rdb.XLen(t.Context(), r.keys.Orders(sale.Partitions[0])).Result()
	if err != nil || events != units {
		t.Errorf("events: got %d (%v), want %d", events, err, units)
	}
}

// TestWindowByTheClockOfRedis: the host's clock is ten years wrong, and nobody notices.
func TestWindowByTheClockOfRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{deps: func(d *httpapi.Deps) {
		d.Now = func() time.Time { return time.Now().AddDate(-10, 0, 0) }
	}})
	now, err := r.rdb.Time(t.Context()).Result()
	must(t, err)
	soon := newSale("soon", 5)
	soon.OpensAt = now.Add(time.Minute).Truncate(time.Millisecond)
	r.create(soon)
	refused := r.expect(order("soon", "ann", ""), 409, "sale-not-open").problem()
	want := soon.OpensAt.UTC().Format("2006-01-02T15:04:05.000Z")
	if refused.OpensAt != want || !strings.Contains(refused.Detail, want) {
		t.Errorf("got opens_at %s and %q, want %s", refused.OpensAt, refused.Detail, want)
	}
	opens := now.Add(time.Second).Truncate(time.Millisecond)
	if _, err := r.publisher.Change(t.Context(), "soon", "test", pipeline.SaleChange{OpensAt: &opens}); err != nil {
		t.Fatal(err)
	}
	var got reply
	testkit.Eventually(t, time.Minute, "the sale to open", func() bool {
		got = r.do(order("soon", "ann", ""))
		return got.status == 202
	})
	if at := decode[receipt](t, got).AcceptedAt; at.Before(opens) {
		t.Errorf("accepted at %s, before it opened at %s", at, opens)
	}

	over := newSale("over", 5)
	over.ClosesAt = now.Add(-time.Millisecond)
	r.create(over)
	r.expect(order("over", "ann", ""), 409, "sale-closed")
}

func TestPausedAndClosedSales(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 5))
	r.setState("drop-1", pipeline.SalePaused)
	r.expect(order("drop-1", "ann", ""), 409, "sale-paused")
	r.setState("drop-1", pipeline.SaleActive)
	r.expect(order("drop-1", "ann", ""), 202, "")
	r.setState("drop-1", pipeline.SaleClosed)
	r.expect(order("drop-1", "bob", ""), 409, "sale-closed")
	// A buyer who ordered in time still gets that answer.
	r.expect(order("drop-1", "ann", ""), 409, "already-ordered")
}

func TestAboveTheLimitOfTheSale(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 50))
	got := r.expect(order("drop-1", "ann", `{"quantity":4}`), 400, "invalid-request").problem()
	if got.MaxQuantity != 3 || len(got.Errors) != 1 || got.Errors[0].Field != "quantity" ||
		!strings.Contains(got.Errors[0].Detail, "3") {
		t.Errorf("got %+v, want the limit of 3 named", got)
	}
}

// TestNotLoadedIsNotSoldOut: a sale that is missing in Redis is never refused for good.
func TestNotLoadedIsNotSoldOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.defineOnly(newSale("drop-1", 5))
	got := r.expect(order("drop-1", "ann", ""), 503, "sale-not-loaded")
	if got.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After: got %q, want 1", got.header.Get("Retry-After"))
	}
	view := decode[saleView](t, r.do(get("/v1/sales/drop-1", "")))
	if view.Remaining != nil || view.State != "open" {
		t.Errorf("got state %s and remaining %v, want open and null", view.State, view.Remaining)
	}
}
