package db_test

import (
	"slices"
	"strings"
	"testing"

	"sluice/pipeline"
)

// What has a row comes back as Order returns it, whatever else is asked for beside it.
func TestOrdersByID(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	f.sale("other", 10)
	a, b, c := event("drop", "u", 1, 1), event("other", "u", 2, 1), event("drop", "v", 1, 2)
	f.persist(a, b, c)
	f.exec(`update orders set status = 'cancelled', closed_at = now() where id = $1`, c.OrderID)
	got, err := f.store.OrdersByID(f.ctx(), []pipeline.OrderKey{
		{SaleID: "drop", OrderID: a.OrderID},
		{SaleID: "other", OrderID: strings.ToUpper(b.OrderID)},
		{
			SaleID:  "drop",
			OrderID: c.OrderID,
		},
		{SaleID: "other", OrderID: a.OrderID},
		{SaleID: "drop", OrderID: "x"},
		{SaleID: "a\x00b", OrderID: a.OrderID},
		{},
		{SaleID: "drop", OrderID: "0191d7c6-0000-7000-8000-000000000000"},
	})
	if err != nil || len(got) != 3 {
		t.Fatalf("got %d orders, %v, want 3", len(got), err)
	}
	for _, order := range got {
		want, err := f.store.Order(f.ctx(), order.SaleID, order.ID)
		if err != nil || order != want {
			t.Errorf("got %+v, want %+v, %v", order, want, err)
		}
	}
	at := slices.IndexFunc(got, func(o pipeline.Order) bool { return o.ID == c.OrderID })
	if got[at].Version != 2 || got[at].Status != pipeline.StatusCancelled {
		t.Errorf("the cancelled one: got %+v, want version 2", got[at])
	}
	if got, err := f.store.OrdersByID(f.ctx(), nil); err != nil || len(got) != 0 {
		t.Errorf("of none: got %v, %v", got, err)
	}
}
