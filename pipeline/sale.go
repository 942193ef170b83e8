package pipeline

import (
	"regexp"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Limits of a sale and an order. Each is far above any honest use and low enough to keep every sum inside 64 bits and
// every key and row small.
const (
	MaxStock         = 1 << 31       // units in one sale
	MaxQuantityLimit = 1000          // units in one order, whatever the sale allows
	maxTitleBytes    = 200           // shown on pages
	MaxUserIDBytes   = 128           // fits any UUID, ULID or OIDC subject in use
	MaxWaitlist      = 1_000_000     // entries on one waitlist: some 300 MB of Redis
	MaxUnitPrice     = 1_000_000_000 // minor units per unit: some millions in any currency
	MaxPaymentWindow = 30 * 24 * time.Hour
	maxEntrySpread   = 10 * time.Minute // a buyer who was there waits up to so long, and a later one twice as long
)

// SaleState is what an operator has decided about a sale. Whether it is open also depends on its window, see Phase.
type SaleState string

// The states. Closed is final.
const (
	SaleActive SaleState = "active"
	SalePaused SaleState = "paused"
	SaleClosed SaleState = "closed"
)

// Sale is one item on sale: a stock, a window, and a limit per buyer.
type Sale struct {
	ID            string
	Title         string
	Total         int64 // units, 1..MaxStock
	Sold          int64 // units in the live orders of Postgres
	MaxQuantity   int   // units per order, 1..MaxQuantityLimit
	OpensAt       time.Time
	ClosesAt      time.Time
	PaymentWindow time.Duration // 0: an order is confirmed without payment
	UnitPrice     int64         // minor units of Currency, up to MaxUnitPrice; 0: no price. Of new orders: see PriceOf
	Currency      string        // ISO 4217; empty where there is no price
	State         SaleState
	Partitions    []Partition // where it is placed; at least one, never changed after creation
	Version       int64       // counts every change of the definition, from 1
	LoadedAt      time.Time   // when it was first put into Redis; zero before
	CreatedAt     time.Time
	// Spread is on how many partitions a new sale is placed: 0 or 1: one; less: one on each Redis master. Always 0 in a
	// sale that was read.
	Spread        int
	CreatedBy     string // the operator, for the audit log; empty means "sluice". Always empty in a sale that was read
	UpdatedAt     time.Time
	Waitlist      int64          // the most waitlist entries once it is sold out, 0..MaxWaitlist; 0: it has no waitlist
	LimitGroup    string         // sales that have a limit together, never changed after creation; empty: none
	GroupLimit    int            // units that a buyer may have in all sales of the group, 1..MaxQuantityLimit
	EntryTicket   bool           // whether an order needs an entry ticket
	EntrySpread   time.Duration  // over which buyers with an entry ticket are let in after the opening, 0..10 min
	Note          string         // for operators; up to MaxNoteBytes
	EarlierPrices []earlierPrice // that were asked before UnitPrice, oldest first
	PricedUntil   time.Time      // what is asked from then on may have changed since this was read; zero: nothing has
	RetiredAt     time.Time      // when it was over for so long that it left Redis; zero: it has not
	// OrdersDroppedAt is when its orders began to be dropped, because they were kept for long enough; zero: all are kept.
	OrdersDroppedAt time.Time
	ReduceTo        int64 // what the total becomes once Redis has taken the units out; 0: nothing is under way
}

// earlierPrice is what a unit cost of an order that was asked for before an instant, in Unix ms.
type earlierPrice struct {
	UntilMS   int64  `json:"until_ms"`
	UnitPrice int64  `json:"unit_price"` // 0: there was no price
	Currency  string `json:"currency"`
}

// Phase is the state that a buyer sees at an instant: scheduled, open, paused or closed.
func (s *Sale) Phase(now time.Time) string {
	switch {
	case s.State == SaleClosed, !now.Before(s.ClosesAt):
		return "closed"
	case s.State == SalePaused:
		return "paused"
	case now.Before(s.OpensAt):
		return "scheduled"
	default:
		return "open"
	}
}

var saleIDPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// ValidSaleID reports whether an id may name a sale: [a-z0-9][a-z0-9-]{0,63}.
func ValidSaleID(id string) bool { return saleIDPattern.MatchString(id) }

// Validate checks a new sale. It returns a KindInvalid error that names the first field that breaks a rule.
func (s *Sale) Validate() error {
	switch {
	case !ValidSaleID(s.ID):
		return Errorf(KindInvalid, "sale id %q: use 1 to 64 characters of a-z, 0-9 and '-', not starting with '-'", s.ID)
	case s.Title == "" || len(s.Title) > maxTitleBytes || !utf8.ValidString(s.Title):
		return Errorf(KindInvalid, "title: use 1 to %d bytes of UTF-8", maxTitleBytes)
	case hasControl(s.Title):
		return Errorf(KindInvalid, "title: control characters are not allowed")
	case s.Total < 1 || s.Total > MaxStock:
		return Errorf(KindInvalid, "stock %d: use 1 to %d units", s.Total, MaxStock)
	case s.MaxQuantity < 1 || s.MaxQuantity > MaxQuantityLimit:
		return Errorf(KindInvalid, "max quantity %d: use 1 to %d units per order", s.MaxQuantity, MaxQuantityLimit)
	case s.OpensAt.UnixMilli() < 0:
		return Errorf(KindInvalid, "opens at %s: use 1970 or later", FormatTime(s.OpensAt))
	case s.ClosesAt.UTC().Year() > lastYear:
		return Errorf(KindInvalid, "closes at %s: use %d or earlier", FormatTime(s.ClosesAt), lastYear)
	case s.ClosesAt.UnixMilli() <= s.OpensAt.UnixMilli(): // Redis keeps milliseconds
		return Errorf(KindInvalid, "closes at %s, which is not after it opens at %s",
			FormatTime(s.ClosesAt), FormatTime(s.OpensAt))
	case s.Waitlist < 0 || s.Waitlist > MaxWaitlist:
		return Errorf(KindInvalid, "waitlist %d: use 0 (none) to %d people", s.Waitlist, MaxWaitlist)
	case s.PaymentWindow < 0 || s.PaymentWindow > MaxPaymentWindow:
		return Errorf(KindInvalid, "payment window %s: use 0 (no payment) to %s", s.PaymentWindow, MaxPaymentWindow)
	case s.EntrySpread < 0 || s.EntrySpread > maxEntrySpread || s.EntrySpread%time.Second != 0:
		return Errorf(KindInvalid, "entry spread %s: use 0 (all at once) to %s, in whole seconds", s.EntrySpread, maxEntrySpread)
	case s.LimitGroup == "" && s.GroupLimit != 0, s.LimitGroup != "" && (s.GroupLimit < 1 || s.GroupLimit > MaxQuantityLimit):
		return Errorf(KindInvalid, "group limit %d: use 1 to %d units per buyer, with a limit group; or neither",
			s.GroupLimit, MaxQuantityLimit)
	case s.LimitGroup != "" && !ValidSaleID(s.LimitGroup):
		return Errorf(KindInvalid, "limit group %q: use 1 to 64 characters of a-z, 0-9 and '-', not starting with '-'",
			s.LimitGroup)
	case s.Note != "" && ValidateReason(s.Note) != nil:
		return Errorf(KindInvalid, "note: use at most %d bytes of UTF-8 without control characters", MaxNoteBytes)
	}
	return s.validatePrice()
}

func (s *Sale) validatePrice() error {
	switch {
	case s.UnitPrice == 0 && s.Currency == "":
		return nil
	case s.UnitPrice < 1 || s.UnitPrice > MaxUnitPrice:
		return Errorf(KindInvalid, "unit price %d: use 1 to %d minor units, with a currency; or neither",
			s.UnitPrice, MaxUnitPrice)
	case !ValidCurrency(s.Currency):
		return Errorf(KindInvalid, "currency %q: a price needs one, of three capital letters (ISO 4217), for instance EUR",
			s.Currency)
	case s.PaymentWindow == 0:
		return Errorf(KindInvalid, "unit price %d: a sale with a payment window of 0 asks for no payment", s.UnitPrice)
	}
	return nil
}

// PriceOf is what an order of so many units costs, in minor units of a currency; 0 where the sale had no price, or none
// is known. It depends on when the order was asked for: the time in its id, which is kept by every retry and through
// every loss. So what an order costs never changes. An id that is no UUID ("") stands for an order of this moment.
func (s *Sale) PriceOf(orderID string, quantity int) (amount int64, currency string) {
	if len(s.EarlierPrices) == 0 && s.PricedUntil.IsZero() {
		return s.UnitPrice * int64(quantity), s.Currency
	}
	asked := askedMS(orderID)
	for _, earlier := range s.EarlierPrices {
		if asked < earlier.UntilMS {
			return earlier.UnitPrice * int64(quantity), earlier.Currency
		}
	}
	if !s.PricedUntil.IsZero() && asked >= s.PricedUntil.UnixMilli() {
		return 0, ""
	}
	return s.UnitPrice * int64(quantity), s.Currency
}

// askedMS is when an order was asked for, in Unix ms: the first 48 bits of its id (RFC 9562, UUID version 7).
func askedMS(orderID string) int64 {
	id, err := uuid.Parse(orderID)
	if err != nil {
		return time.Now().UnixMilli()
	}
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return ms
}

// lastYear is the last one that RFC 3339, and with it the API, can express.
const lastYear = 9999

// FormatTime is an instant as errors and logs show it: RFC 3339, UTC.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func hasControl(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) {
			return true
		}
	}
	return false
}

// ValidCurrency reports whether a text has the form of an ISO 4217 code. It does not check that the code is assigned.
func ValidCurrency(code string) bool {
	if len(code) != 3 {
		return false
	}
	for i := range len(code) {
		if code[i] < 'A' || code[i] > 'Z' {
			return false
		}
	}
	return true
}
