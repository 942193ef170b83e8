package view

import (
	"time"

	"sluice/pipeline"
)

// Sale is a sale as Postgres defines it, and how many units Redis has left of it.
type Sale struct {
	ID                   string  `json:"id"`
	Title                string  `json:"title"`
	State                string  `json:"state"` // what the operator decided: active, paused, closed
	Phase                string  `json:"phase"` // what buyers see: scheduled, open, paused, closed
	Total                int64   `json:"total"`
	Sold                 int64   `json:"sold"`      // units in orders that are in Postgres
	Remaining            *int64  `json:"remaining"` // null when the sale is missing in Redis, or Redis does not answer
	MaxQuantity          int     `json:"max_quantity"`
	OpensAt              string  `json:"opens_at"`
	ClosesAt             string  `json:"closes_at"`
	PaymentWindowSeconds int64   `json:"payment_window_seconds"`
	Waitlist             int64   `json:"waitlist"`   // the most entries of its waitlist; 0: it has none
	UnitPrice            *int64  `json:"unit_price"` // minor units of currency; null: amounts are not compared
	Currency             *string `json:"currency"`
	PriceFrom            *string `json:"price_from"`  // earlier orders cost another price; null: all cost this one
	ReducingTo           *int64  `json:"reducing_to"` // what the total becomes as soon as Redis has taken the units out
	Note                 string  `json:"note"`
	LimitGroup           *string `json:"limit_group"`  // sales that have a limit together; null: none
	GroupLimit           *int    `json:"group_limit"`  // units of a buyer in all of them
	EntryTicket          bool    `json:"entry_ticket"` // whether an order needs one
	EntrySpreadSeconds   int64   `json:"entry_spread_seconds"`
	Version              int64   `json:"version"`
	LoadedAt             *string `json:"loaded_at"`
	RetiredAt            *string `json:"retired_at"`        // when it left Redis, because it was over for long enough
	OrdersDroppedAt      *string `json:"orders_dropped_at"` // when they began to be dropped, after they were kept long enough
	CreatedAt            string  `json:"created_at"`
	UpdatedAt            string  `json:"updated_at"`
}

// NewSale views a sale at an instant; remaining is nil where it is not known. An open sale of which nothing is left is
// sold_out, as buyers see it.
func NewSale(sale *pipeline.Sale, now time.Time, remaining *int64) Sale {
	var price *int64
	if sale.UnitPrice > 0 {
		price = &sale.UnitPrice
	}
	var from *string
	if n := len(sale.EarlierPrices); n > 0 {
		from = TimeOrNil(time.UnixMilli(sale.EarlierPrices[n-1].UntilMS))
	}
	var reducing *int64
	if sale.ReduceTo > 0 {
		reducing = &sale.ReduceTo
	}
	var groupLimit *int
	if sale.LimitGroup != "" {
		groupLimit = &sale.GroupLimit
	}
	phase := sale.Phase(now)
	if phase == "open" && remaining != nil && *remaining <= 0 {
		phase = "sold_out"
	}
	return Sale{
		ID: sale.ID, Title: sale.Title, State: string(sale.State), Phase: phase,
		Total: sale.Total, Sold: sale.Sold, Remaining: remaining, MaxQuantity: sale.MaxQuantity,
		OpensAt: Time(sale.OpensAt), ClosesAt: Time(sale.ClosesAt),
		PaymentWindowSeconds: int64(sale.PaymentWindow / time.Second),
		Waitlist:             sale.Waitlist, UnitPrice: price, Currency: textOrNil(sale.Currency), Version: sale.Version,
		PriceFrom: from, ReducingTo: reducing, Note: sale.Note,
		LimitGroup: textOrNil(sale.LimitGroup), GroupLimit: groupLimit,
		EntryTicket: sale.EntryTicket, EntrySpreadSeconds: int64(sale.EntrySpread / time.Second),
		LoadedAt: TimeOrNil(sale.LoadedAt), RetiredAt: TimeOrNil(sale.RetiredAt),
		OrdersDroppedAt: TimeOrNil(sale.OrdersDroppedAt),
		CreatedAt:       Time(sale.CreatedAt), UpdatedAt: Time(sale.UpdatedAt),
	}
}
