package httpapi_test

import (
	"strings"
	"testing"

	"sluice/internal/testkit"
)

type orderView struct {
	OrderID     string `json:"order_id"`
	OrderNumber string `json:"order_number"`
	SaleID      string `json:"sale_id"`
	Quantity    int
	Status      string
	PersistedAt string `json:"persisted_at"`
	PayBy       string `json:"pay_by"`
}

// TestOrderOnItsWay: one order, queued and then stored, is the same order at both addresses.
func TestOrderOnItsWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(newSale("drop-1", 5))
	placed := r.expect(order("drop-1", "ann", `{"quantity":2}`), 202, "")
	want := decode[receipt](t, placed)
	for _, status := range []string{"queued", "awaiting_payment"} {
		for _, path := range []string{placed.header.Get("Location"), "/v1/sales/drop-1/orders/mine"} {
			answer := r.expect(get(path, "ann"), 200, "")
			got := decode[orderView](t, answer)
			if got.OrderID != want.OrderID || got.OrderNumber != want.OrderNumber || got.SaleID != "drop-1" ||
				got.Quantity != 2 || got.Status != status {
				t.Errorf("%s: got %s, want status %s", path, answer.body, status)
			}
			if stored := status != "queued"; (got.PersistedAt != "") != stored || (got.PayBy != "") != stored {
				t.Errorf("%s: got %s: persisted_at and pay_by belong to a stored order", path, answer.body)
			}
			if strings.Contains(string(answer.body), "ann") {
				t.Errorf("the answer names the buyer: %s", answer.body)
			}
		}
		r.persist(sale)
	}
}

func TestOrderIsItsOwners(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(newSale("drop-1", 5))
	path := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	id := path[strings.LastIndexByte(path, '/')+1:]
	for range 2 { // queued, then stored
		r.expect(get(strings.Replace(path, id, strings.ToUpper(id), 1), "ann"), 200, "") // a UUID has no case
		foreign := r.expect(get(path, "bob"), 404, "unknown-order")
		none := r.expect(get("/v1/sales/drop-1/orders/01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f", "bob"), 404, "unknown-order")
		if foreign.problem().Detail != none.problem().Detail {
			t.Errorf("a foreign order is answered differently from none: %q, %q", foreign.problem().Detail,
				none.problem().Detail)
		}
		r.expect(get("/v1/sales/drop-1/orders/mine", "bob"), 404, "unknown-order")
		r.persist(sale)
	}
}

func TestWhatIsNoOrderID(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 5))
	for _, id := range []string{
		"1", "x", "null", "MINE", "%00", "a%2Fb", strings.Repeat("a", 36), "{01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f}",
		"01971f4e8a3b7c5d9e2f1a2b3c4d5e6f", "urn:uuid:01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f", strings.Repeat("9", 2000),
	} {
		r.expect(get("/v1/sales/drop-1/orders/"+id, "ann"), 404, "unknown-order")
	}
	r.expect(get("/v1/sales/drop-1/orders/x/y", "ann"), 404, "not-found")
}

func TestUnchangedOrderIsNotSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(newSale("drop-1", 5))
	path := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	tag := r.expect(get(path, "ann"), 200, "").header.Get("ETag")
	for _, same := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
		got := r.expect(get(path, "ann").with("If-None-Match", same), 304, "")
		if len(got.body) != 0 || got.header.Get("ETag") != tag {
			t.Errorf("If-None-Match %s: got %q, ETag %s", same, got.body, got.header.Get("ETag"))
		}
	}
	r.expect(get(path, "ann").with("If-None-Match", `"other"`), 200, "")
	r.persist(sale)
	stored := r.expect(get(path, "ann").with("If-None-Match", tag), 200, "")
	if stored.header.Get("ETag") == tag {
		t.Error("the stored order has the queued one's ETag")
	}
	r.expect(get(path, "bob").with("If-None-Match", "*"), 404, "unknown-order")
}

// TestOrderWhileRedisIsAway: what Postgres has is shown; what it does not have may still be in Redis, so its absence is
// not claimed.
func TestOrderWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	redis := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{redisURL: redis.URL()})
	sale := r.create(newSale("drop-1", 5))
	stored := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	r.persist(sale)
	queued := r.expect(order("drop-1", "bob", ""), 202, "").header.Get("Location")
	must(t, redis.Kill())
	r.expect(get(stored, "ann"), 200, "")
	r.expect(get(queued, "bob"), 503, "store-unavailable")
	r.expect(get("/v1/sales/drop-1/orders/mine", "bob"), 503, "store-unavailable")
}
