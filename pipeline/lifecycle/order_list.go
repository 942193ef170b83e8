package lifecycle

import (
	"context"
	"slices"
	"strings"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/payments"
)

const (
	// MaxListedOrders is the most orders of one page: some 500 KB of JSON.
	MaxListedOrders = 1000
	// maxPaymentIDBytes is what a payment's row holds.
	maxPaymentIDBytes = 255
)

// ListedStatuses are those that a stored order can have. A queued order is not in Postgres, and in no list.
var ListedStatuses = []pipeline.OrderStatus{
	pipeline.StatusAwaitingPayment, pipeline.StatusConfirmed, pipeline.StatusPaid, pipeline.StatusCancelled,
	pipeline.StatusExpired, pipeline.StatusRejected, pipeline.StatusRefundDue, pipeline.StatusReturned,
	pipeline.StatusRefunded,
}

// countedPayments are the outcomes of payments that belong to an order; what was refused or repeated does not.
var countedPayments = []payments.Outcome{payments.Waiting, payments.Paid, payments.RefundDue, payments.Refunded}

// OrderFilter chooses stored orders. An order must satisfy every field that is given; zero fields choose all.
type OrderFilter struct {
	SaleID    string
	OrderID   string // UUID
	Number    int64  // the number that people read out
	UserID    string
	Statuses  []pipeline.OrderStatus // any of them
	Since     time.Time              // accepted then or later
	Until     time.Time              // accepted before then
	PaymentID string                 // the provider's id of a payment for it that counts
	Payment   payments.Outcome       // a payment for it has this outcome
	After     OrderPosition          // where the page before ended
	Limit     int                    // 1..MaxListedOrders
}

// ListedOrder is an order with what it costs: the price that its sale had when the order was asked for, see
// pipeline.Sale.PriceOf.
type ListedOrder struct {
	pipeline.Order
	UnitPrice int64  // minor units of Currency; 0: the sale had no price
	Currency  string // ISO 4217
}

// OrderPage is a part of a list of orders, the newest first. Within a sale that is the order of their ids, which begin
// with the time of the request; else that of their accepts.
type OrderPage struct {
	Orders []ListedOrder
	// Next is where the next page begins; zero at the end of the list. A page may have fewer orders than its limit, or
	// none, and a next one all the same: a page is bounded also by how many orders were looked at for it.
	Next OrderPosition
}

// OrderList reads pages of orders.
type OrderList interface {
	Orders(ctx context.Context, filter OrderFilter) (OrderPage, error)
}

// Validate returns a KindInvalid error that names the first field which can't choose anything.
func (f *OrderFilter) Validate() error {
	switch {
	case f.Limit < 1 || f.Limit > MaxListedOrders:
		return pipeline.Errorf(pipeline.KindInvalid, "limit %d: use 1 to %d", f.Limit, MaxListedOrders)
	case f.SaleID != "" && !pipeline.ValidSaleID(f.SaleID):
		return pipeline.Errorf(pipeline.KindInvalid, "sale: it must be the id of a sale")
	case f.OrderID != "" && !pipeline.ValidUUID(f.OrderID):
		return pipeline.Errorf(pipeline.KindInvalid, "order: it must be the id of an order, a UUID")
	case f.Number < 0:
		return pipeline.Errorf(pipeline.KindInvalid, "number: it must be the number of an order, 1 or more")
	case f.UserID != "" && pipeline.ValidateUserID(f.UserID) != nil:
		return pipeline.Errorf(pipeline.KindInvalid, "buyer: it must be the id of a buyer, 1 to %d bytes without spaces",
			pipeline.MaxUserIDBytes)
	case len(f.PaymentID) > maxPaymentIDBytes || strings.ContainsFunc(f.PaymentID, notGraphic):
		return pipeline.Errorf(pipeline.KindInvalid, "payment id: use at most %d characters from ! to ~", maxPaymentIDBytes)
	case f.Payment != "" && !slices.Contains(countedPayments, f.Payment):
		return pipeline.Errorf(pipeline.KindInvalid, "payment %q: use %s", pipeline.Clip(string(f.Payment)),
			namesOf(countedPayments))
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return pipeline.Errorf(pipeline.KindInvalid, "until: it must be after since")
	}
	for _, status := range f.Statuses {
		if !slices.Contains(ListedStatuses, status) {
			return pipeline.Errorf(pipeline.KindInvalid, "status %q: use %s", pipeline.Clip(string(status)),
				namesOf(ListedStatuses))
		}
	}
	return nil
}

func notGraphic(r rune) bool { return r < '!' || r > '~' }

func namesOf[T ~string](list []T) string {
	names := make([]string, len(list))
	for i, name := range list {
		names[i] = string(name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// StatusesIn reads statuses with commas between them; Validate checks them.
func StatusesIn(text string) []pipeline.OrderStatus {
	if text == "" {
		return nil
	}
	var statuses []pipeline.OrderStatus
	for name := range strings.SplitSeq(text, ",") {
		statuses = append(statuses, pipeline.OrderStatus(strings.TrimSpace(name)))
	}
	return statuses
}

// EachOrderPage reads all that a filter chooses, page by page, in memory for one page, and gives each page to a
// callback: once at least, with no order where there are none. No transaction is held between pages, so a slow reader
// keeps no row from being vacuumed: each order is there once, as it was when its page was read, and what is accepted
// meanwhile is left out. Errors: KindInvalid, KindUnavailable; an error of the callback ends the reading and is
// returned as it is.
func EachOrderPage(ctx context.Context, list OrderList, filter OrderFilter, each func([]ListedOrder) error) error {
	filter.Limit = MaxListedOrders
	for first := true; ; first = false {
		page, err := list.Orders(ctx, filter)
		if err != nil {
			return err
		}
		if len(page.Orders) > 0 || first {
			if err := each(page.Orders); err != nil {
				return err
			}
		}
		if page.Next.IsZero() {
			return nil
		}
		filter.After = page.Next
	}
}
