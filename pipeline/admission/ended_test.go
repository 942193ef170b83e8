package admission_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/journal"
	"sluice/pipeline/pipelinetest"
)

// TestAnEndedOrderIsNotJournaledAgain: the key of an order that has ended gets its receipt once more, and the journal
// does not learn of it: were Postgres restored to before the end, it would give the order units again.
func TestAnEndedOrderIsNotJournaledAgain(t *testing.T) {
	t.Parallel()
	book := journal.Open(journal.Options{Dir: t.TempDir()})
	t.Cleanup(func() { _ = book.Close() })
	r := pipelinetest.New(t, pipelinetest.Options{
		Sale: pipeline.Sale{Total: 5, PaymentWindow: time.Hour}, Admission: admission.Options{Journal: book},
	})
	journaled := func() (orders []string) {
		err := book.Each(context.WithoutCancel(t.Context()), r.Sale.Partitions,
			func(_ pipeline.SalePartition, accepts []pipeline.Accept) error {
				for _, a := range accepts {
					orders = append(orders, a.OrderID)
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		return orders
	}
	request := pipeline.OrderRequest{UserID: "ann", Quantity: 2, IdempotencyKey: "k"}
	first, err := r.Try(request)
	if err != nil || first.Result != admission.Accepted || !first.Receipt.Journaled {
		t.Fatalf("got %+v, %v, want accepted and journaled", first, err)
	}
	order := first.Receipt.OrderID
	if again, err := r.Try(request); err != nil || again.Receipt != first.Receipt {
		t.Fatalf("the key again: got %+v, %v, want %+v", again, err, first)
	}
	if got, want := journaled(), []string{order, order}; !slices.Equal(got, want) {
		t.Fatalf("the journal has %v, want %v", got, want)
	}
	r.Persist(r.Events(r.Sale)...)
	r.End(order)
	r.Release("ann", order)
	want := first.Receipt
	want.Journaled = false
	if again, err := r.Try(request); err != nil || again.Result != admission.Replayed || again.Receipt != want {
		t.Errorf("after the end: got %+v, %v, want replayed and %+v", again, err, want)
	}
	if got := journaled(); len(got) != 2 {
		t.Errorf("the journal has %v, want nothing new", got)
	}
}
