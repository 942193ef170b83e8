package view

import (
	"strconv"

	"sluice/pipeline"
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
