package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"sluice/pipeline"
)

// MaxEndpoints bounds how many endpoints can be registered: each is a connection, a goroutine and a label of metrics,
// and keeps events in the outbox.
const MaxEndpoints = 20

// secretBytes is the length of a secret's key: Standard Webhooks asks for 24 to 64, and SHA-256 gains nothing beyond
// 32.
const secretBytes = 32

// The types of events. TypeTest is sent by EndpointService.Test only.
const (
	TypeOrderAwaitingPayment = "order.awaiting_payment"
	TypeOrderConfirmed       = "order.confirmed"
	TypeOrderPaid            = "order.paid"
	TypeOrderExpired         = "order.expired"
	TypeOrderCancelled       = "order.cancelled"
	TypeOrderRejected        = "order.rejected"
	TypeOrderRefundDue       = "order.refund_due" // money arrived for an order that had ended
	TypeOrderReturned        = "order.returned"
	TypeOrderRefunded        = "order.refunded" // all money that came for it was paid back
	TypeOrderExtended        = "order.extended" // it has more time to pay
	TypeWaitlistTurn         = "waitlist.turn"  // the order of a buyer who waited is stored
	TypeSaleCreated          = "sale.created"
	TypeSaleOpened           = "sale.opened" // by time
	TypeSalePaused           = "sale.paused"
	TypeSaleResumed          = "sale.resumed"
	TypeSaleRestocked        = "sale.restocked"
	TypeSaleReduced          = "sale.reduced" // units that nobody had were taken out
	TypeSaleEdited           = "sale.edited"  // its title, price, limit or waitlist
	TypeSaleRescheduled      = "sale.rescheduled"
	TypeSaleSoldOut          = "sale.sold_out"
	TypeSaleClosed           = "sale.closed" // by time, or by an operator
	TypeTest                 = "sluice.test"

	TypePaymentReceived          = "payment.received"           // its order is paid by it
	TypePaymentRefundDue         = "payment.refund_due"         // it must be paid back
	TypePaymentPartiallyRefunded = "payment.partially_refunded" // some of it was; the rest remains due
	TypePaymentRefunded          = "payment.refunded"           // all of it was
)

// Types are those that an endpoint can choose from.
var Types = []string{
	TypeOrderAwaitingPayment, TypeOrderConfirmed, TypeOrderPaid, TypeOrderExpired, TypeOrderCancelled, TypeOrderRejected,
	TypeOrderRefundDue, TypeOrderReturned, TypeOrderRefunded, TypeOrderExtended, TypePaymentReceived,
	TypePaymentRefundDue, TypePaymentPartiallyRefunded, TypePaymentRefunded, TypeWaitlistTurn, TypeSaleCreated,
	TypeSaleOpened, TypeSalePaused, TypeSaleResumed, TypeSaleRestocked, TypeSaleReduced, TypeSaleEdited,
	TypeSaleRescheduled, TypeSaleSoldOut, TypeSaleClosed,
}

// Endpoint is a receiver of events and the state of its deliveries. Times that have not come are zero.
type Endpoint struct {
	ID             int64
	URL            string
	Secret         string   // as it is stored; set only for signing. For the operator who gets a new one: whsec_…
	PreviousSecret string   // as it is stored; set only for signing, and while events are signed with it too
	Types          []string // of the events it gets; empty: all
	CreatedAt      time.Time
	DisabledAt     time.Time
	DisabledReason string
	Backlog        int64     // events neither delivered nor skipped yet; about
	FailingSince   time.Time // of the first failure in a row
	Attempts       int       // failures in a row
	NextAttemptAt  time.Time // not before
	LastError      string    // of the last failure in a row, or why events wait, for operators
	DeliveredAt    time.Time // of the last delivery
	Missed         int64     // events dropped before they were delivered: too old, or resent in vain for a day
}

// Disabled reports whether nothing is delivered until an operator enables it.
func (e *Endpoint) Disabled() bool { return !e.DisabledAt.IsZero() }

// Withheld reports whether events wait because a worker could not sign them, which is no failure of the receiver.
func (e *Endpoint) Withheld() bool { return !e.Disabled() && e.Attempts == 0 && e.LastError != "" }

// NewSecret makes a secret in the format of Standard Webhooks.
func NewSecret() string {
	var key [secretBytes]byte
	_, _ = rand.Read(key[:]) // documented never to fail
	return "whsec_" + base64.StdEncoding.EncodeToString(key[:])
}

// ValidateTypes returns a KindInvalid error that names the first type which is unknown or given twice.
func ValidateTypes(types []string) error {
	for i, t := range types {
		switch {
		case !slices.Contains(Types, t):
			return pipeline.Errorf(pipeline.KindInvalid, "event type %q: use some of %s, or none for all",
				t, strings.Join(Types, ", "))
		case slices.Contains(types[:i], t):
			return pipeline.Errorf(pipeline.KindInvalid, "event type %s is there twice", t)
		}
	}
	return nil
}
