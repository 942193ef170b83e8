package view

import (
	"strconv"

	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
)

// Order is an order as operators see it.
type Order struct {
	OrderID     string  `json:"order_id"`
	OrderNumber string  `json:"order_number"`
	SaleID      string  `json:"sale_id"`
	UserID      string  `json:"user_id"`
	Quantity    int     `json:"quantity"`
	Amount      *int64  `json:"amount"`   // what it costs, in minor units of currency; null where the sale has no price
	Currency    *string `json:"currency"` // ISO 4217
	Status      string  `json:"status"`
	Reason      *string `json:"reason"` // why it was rejected
	AcceptedAt  string  `json:"accepted_at"`
	PersistedAt *string `json:"persisted_at"`
	PayBy       *string `json:"pay_by"`
	PaidAt      *string `json:"paid_at"`
	ClosedAt    *string `json:"closed_at"`
}

// NewOrder views an order of a sale.
func NewOrder(sale *pipeline.Sale, o *pipeline.Order) Order {
	amount, currency := AmountOf(sale, o.ID, o.Quantity)
	return Order{
		OrderID: o.ID, OrderNumber: strconv.FormatInt(o.Number, 10), SaleID: o.SaleID, UserID: o.UserID,
		Quantity: o.Quantity, Amount: amount, Currency: currency, Status: string(o.Status),
		Reason: textOrNil(o.Reason), AcceptedAt: Time(o.AcceptedAt), PersistedAt: TimeOrNil(o.PersistedAt),
		PayBy: TimeOrNil(o.PayBy), PaidAt: TimeOrNil(o.PaidAt), ClosedAt: TimeOrNil(o.ClosedAt),
	}
}

// AmountOf is what an order costs, in minor units of a currency; nil where its sale had no price.
func AmountOf(sale *pipeline.Sale, orderID string, quantity int) (amount *int64, currency *string) {
	units, code := sale.PriceOf(orderID, quantity)
	if units == 0 {
		return nil, nil
	}
	return &units, &code
}

// NewListedOrder views an order of a list.
func NewListedOrder(o *lifecycle.ListedOrder) Order {
	return NewOrder(&pipeline.Sale{ID: o.SaleID, UnitPrice: o.UnitPrice, Currency: o.Currency}, &o.Order)
}

// OrderPage is a page of orders, the newest first.
type OrderPage struct {
	Orders    []Order `json:"orders"`
	NextAfter *string `json:"next_after"` // for the next page; null on the last one
}

// NewOrderPage views a page.
func NewOrderPage(p *lifecycle.OrderPage) OrderPage {
	return OrderPage{Orders: views(p.Orders, NewListedOrder), NextAfter: textOrNil(p.Next.Cursor())}
}
