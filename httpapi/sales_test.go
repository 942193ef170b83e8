package httpapi_test

import (
	"fmt"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

type saleView struct {
	ID, Title, State     string
	OpensAt              time.Time `json:"opens_at"`
	ClosesAt             time.Time `json:"closes_at"`
	Total                int64
	Remaining            *int64
	MaxQuantity          int   `json:"max_quantity"`
	PaymentWindowSeconds int64 `json:"payment_window_seconds"`
}

type salesView struct{ Sales []saleView }

// listed returns a sale as the list shows it.
func (r *rig) listed(id string) saleView {
	r.t.Helper()
	for _, s := range decode[salesView](r.t, r.do(get("/v1/sales", ""))).Sales {
		if s.ID == id {
			return s
		}
	}
	r.t.Fatalf("sale %s is not listed", id)
	return saleView{}
}

func TestSaleIsShown(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(newSale("drop-1", 5))
	r.expect(order("drop-1", "ann", `{"quantity":2}`), 202, "")
	for name, got := range map[string]saleView{
		"alone": decode[saleView](t, r.expect(get("/v1/sales/drop-1", ""), 200, "")), "listed": r.listed("drop-1"),
	} {
		if got.Remaining == nil || *got.Remaining != 3 {
			t.Errorf("%s: remaining: got %v, want 3", name, got.Remaining)
		}
		if got.ID != "drop-1" || got.Title != "Lamp No. 7" || got.State != "open" || got.Total != 5 || got.MaxQuantity != 3 ||
			got.PaymentWindowSeconds != 900 || !got.OpensAt.Equal(sale.OpensAt.Truncate(time.Millisecond)) ||
			!got.ClosesAt.Equal(sale.ClosesAt.Truncate(time.Millisecond)) {
			t.Errorf("%s: got %+v of %+v", name, got, sale)
		}
	}
}

func TestStatesOfASale(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	later := newSale("later", 1)
	later.OpensAt = time.Now().Add(30 * time.Minute)
	over := newSale("over", 1)
	over.ClosesAt = time.Now().Add(-time.Minute)
	for _, s := range []*pipeline.Sale{
		later, over, newSale("open", 1), newSale("paused", 1), newSale("closed", 1),
		newSale("sold", 1),
	} {
		r.create(s)
	}
	r.setState("paused", pipeline.SalePaused)
	r.setState("closed", pipeline.SaleClosed)
	r.expect(order("sold", "ann", ""), 202, "")
	for id, want := range map[string]string{
		"later": "scheduled", "over": "closed", "open": "open", "paused": "paused", "closed": "closed", "sold": "sold_out",
	} {
		if got := r.listed(id).State; got != want {
			t.Errorf("sale %s: got %s, want %s", id, got, want)
		}
	}
}

func TestListIsLimited(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	if got := string(r.expect(get("/v1/sales", ""), 200, "").body); got != `{"sales":[]}` {
		t.Errorf("without sales: got %s", got)
	}
	for i := range 3 {
		s := newSale(fmt.Sprintf("drop-%d", i), 5)
		s.OpensAt = s.OpensAt.Add(time.Duration(i) * time.Minute)
		r.create(s)
	}
	got := decode[salesView](t, r.expect(get("/v1/sales?limit=2&utm_source=x", ""), 200, ""))
	if len(got.Sales) != 2 || got.Sales[0].ID != "drop-0" || got.Sales[1].ID != "drop-1" {
		t.Errorf("got %+v, want drop-0 and drop-1", got)
	}
	for _, query := range []string{
		"limit=0", "limit=-1", "limit=101", "limit=1.5", "limit=x", "limit=", "limit=1&limit=2",
		"limit=99999999999999999999", "a=%zz", "a;b",
	} {
		refused := r.expect(get("/v1/sales?"+query, ""), 400, "invalid-request").problem()
		if len(refused.Errors) != 1 {
			t.Errorf("%s: got %+v", query, refused)
		}
	}
}

// TestNewSaleIsFound: a sale that was created after the catalogue was read is found by its first buyer.
func TestNewSaleIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	must(t, r.publisher.Create(t.Context(), newSale("drop-1", 5)))
	r.expect(order("drop-1", "ann", ""), 202, "")
	r.expect(get("/v1/sales/drop-2", ""), 404, "unknown-sale")
	must(t, r.publisher.Create(t.Context(), newSale("drop-2", 5)))
	testkit.Eventually(t, time.Minute, "the unknown sale to be looked up again", func() bool {
		return r.do(get("/v1/sales/drop-2", "")).status == 200
	})
}

// TestListWhileRedisIsSilent: the list comes in the time of one silence, not of one per sale, and claims nothing.
func TestListWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	redis := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{redisURL: redis.URL()})
	for i := range 8 {
		r.create(newSale(fmt.Sprintf("drop-%d", i), 5))
	}
	must(t, redis.Pause())
	answer := r.soon(4*time.Second, get("/v1/sales", ""), 200, "") // one silence is 1 s
	must(t, redis.Resume())
	got := decode[salesView](t, answer).Sales
	for _, s := range got {
		if s.Remaining != nil || s.State != "open" {
			t.Errorf("sale %s: got %s and %d, want open and null", s.ID, s.State, *s.Remaining)
		}
	}
	if len(got) != 8 {
		t.Errorf("got %d sales, want 8", len(got))
	}
}
