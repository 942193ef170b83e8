package recovery_test

import (
	"strings"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
)

// TestGroupLimitsOutliveRedis: after Redis has lost everything, what a buyer has in one sale still counts in the others
// of its group, and all of them are on the same partition.
func TestGroupLimitsOutliveRedis(t *testing.T) {
	t.Parallel()
	lamp := func(id string) pipeline.Sale {
		return pipeline.Sale{
			ID: id, Total: 5, MaxQuantity: 2, PaymentWindow: time.Hour, Waitlist: 5, LimitGroup: "lamps", GroupLimit: 2,
		}
	}
	r := pipelinetest.New(t, pipelinetest.Options{Sale: lamp("red")})
	blue := r.CreateSale(lamp("blue"))
	if len(blue.Partitions) != 1 || blue.Partitions[0] != r.Sale.Partitions[0] {
		t.Fatalf("the sales of a group are on partitions %v and %v", r.Sale.Partitions, blue.Partitions)
	}
	order := func(sale *pipeline.Sale, user string, quantity int, want admission.Result) {
		t.Helper()
		got, err := r.Admission.Admit(r.Ctx(), sale, pipeline.OrderRequest{UserID: user, Quantity: quantity})
		if err != nil || got.Result != want {
			t.Errorf("%d of %s for %s: got %s, %v, want %s", quantity, sale.ID, user, got.Result, err, want)
		}
	}
	order(r.Sale, "ann", 1, admission.Accepted)
	order(r.Sale, "bob", 2, admission.Accepted)
	r.Persist(r.Events(r.Sale)...)
	order(blue, "cy", 2, admission.Accepted) // in the stream alone
	check := func() {
		t.Helper()
		order(blue, "ann", 2, admission.OverGroupLimit)
		order(blue, "bob", 1, admission.OverGroupLimit)
		order(r.Sale, "cy", 1, admission.OverGroupLimit)
	}
	check()
	loseAll := func() {
		t.Helper()
		for _, sale := range []*pipeline.Sale{r.Sale, blue} {
			r.Lose(sale)
		}
		p := r.Sale.Partitions[0]
		for _, key := range []string{
			r.Keys.Buyers(p, r.Sale.ID), r.Keys.Buyers(p, blue.ID), r.Keys.Trusted(p),
			strings.Replace(r.Keys.Sale(p, "lamps"), ":sale:", ":group:", 1),
		} {
			if n, err := r.Redis.Del(r.Ctx(), key).Result(); err != nil || n != 1 {
				t.Fatalf("delete %s: %d, %v", key, n, err)
			}
		}
		r.Ensure()
	}
	loseAll()
	check()
	order(blue, "ann", 1, admission.Accepted)

	// Also days after one of the sales is over, for as long as another is not.
	r.Persist(r.Events(blue)...)
	r.Exec(1, `update sales set opens_at = opens_at - interval '4 days', closes_at = closes_at - interval '4 days'
		where id = $1`, r.Sale.ID)
	loseAll()
	order(blue, "bob", 1, admission.OverGroupLimit)
	order(blue, "dan", 2, admission.Accepted)
}
