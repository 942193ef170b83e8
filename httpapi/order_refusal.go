package httpapi

import (
	"fmt"
	"time"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/admission"
)

// rejection turns every result that is not an accept into its problem.
func rejection(sale *pipeline.Sale, d *admission.Decision) error {
	switch d.Result {
	case admission.AlreadyOrdered:
		return alreadyOrdered(liveOrder, d.Receipt.SaleID, d.Receipt.OrderID)
	case admission.KeyReused:
		return keyReused("this Idempotency-Key belongs to an order with another quantity", d.Receipt.OrderID)
	case admission.SoldOut:
		p := newProblem(codeSoldOut, "not enough units are left")
		p.Waitlist = sale.Waitlist > 0
		return p
	case admission.NotOpen:
		return saleNotOpen(d.OpensAt)
	case admission.Closed:
		return newProblem(codeSaleClosed, "the sale is over")
	case admission.Paused:
		return newProblem(codeSalePaused, "the sale is paused")
	case admission.BacklogFull:
		return newProblem(codeBacklogFull, "too many accepted orders wait to be stored; nothing was ordered")
	case admission.OverLimit:
		return overLimit(d.MaxQuantity, "")
	case admission.OverGroupLimit:
		return overGroupLimit(sale, d.Held)
	default:
		return fmt.Errorf("admission returned %q, which has no answer in HTTP", d.Result)
	}
}

const liveOrder = "you have a live order in this sale"

// alreadyOrdered names the order, in the body and in the Location header.
func alreadyOrdered(detail, saleID, orderID string) error {
	p := newProblem(codeAlreadyOrdered, detail)
	p.OrderID, p.location = orderID, orderPath(saleID, orderID)
	return p
}

func keyReused(detail, orderID string) error {
	p := newProblem(codeIdempotencyKeyReused, detail)
	p.OrderID = orderID
	return p
}

// overLimit names the limit of a sale, and what else it demands of a quantity.
func overLimit(limit int, also string) error {
	p := invalid(fieldError{fieldQuantity, fmt.Sprintf("this sale allows 1 to %d units per order%s", limit, also)})
	p.MaxQuantity = limit
	return p
}

// overGroupLimit says how much a buyer has in the other sales of a group.
func overGroupLimit(sale *pipeline.Sale, held int64) error {
	return newProblem(codeOverGroupLimit, fmt.Sprintf("you may have %d units in the sales of group %s together; in the others "+
		"of them you have, or wait for, %d", sale.GroupLimit, sale.LimitGroup, held))
}

func saleNotOpen(opensAt time.Time) error {
	p := newProblem(codeSaleNotOpen, "the sale opens at "+view.Time(opensAt))
	p.OpensAt = view.Time(opensAt)
	return p
}
