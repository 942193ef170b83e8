package console_test

import (
	"net/http"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/operator"
	"sluice/pipeline/pipelinetest"
)

// TestWhyNobodyIsServed: the waitlist shows each buyer's place, and why the buyer was not served yet.
func TestWhyNobodyIsServed(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{Sale: pipeline.Sale{
		Total: 3, MaxQuantity: 3, PaymentWindow: time.Hour, Waitlist: 10,
	}})
	b := r.as("ann", operator.Read)
	const page = salePath + "/waitlist"
	b.want(http.StatusOK, b.get(page), "Nobody waits")
	r.Admit("buyer", 3)
	r.Joins(r.Waitlist(), "first", 3)
	r.Joins(r.Waitlist(), "second", 1)
	b.want(http.StatusOK, b.get(page), "2 buyers", "1 first 3", "Is next: wants 3 units, and 0 units are free.",
		"2 second 1", "1 buyer is before, who come first even where they want more units.")
	b.want(http.StatusOK, b.get(salePath), "2 buyers on the waitlist")
	for _, change := range []struct {
		state pipeline.SaleState
		says  string
	}{{pipeline.SalePaused, "The sale is paused"}, {pipeline.SaleClosed, "nobody is served any more"}} {
		_, err := r.Publisher.Change(r.Ctx(), "drop-1", "cli:test", pipeline.SaleChange{State: &change.state})
		must(t, err)
		b.want(http.StatusOK, b.get(page), change.says, "Held up like all")
	}
	b.want(http.StatusNotFound, b.get("/console/sales/nope/waitlist"))
}
