package console

import (
	"fmt"
	"slices"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/overview"
	"sluice/pipeline/payments"
)

// step is something that happened to an order, or will: what, when, and why.
type step struct {
	At    time.Time // zero: not yet
	What  string
	Why   string
	Who   string
	Tone  string
	Path  string
	Link  string
	order int // among those of one instant
}

// view puts together what is known of an order; found is false where nothing is.
func (f *orderFacts) view() (v orderView, found bool) {
	v = orderView{orderFacts: f, Status: string(pipeline.StatusQueued)}
	switch {
	case f.Row != nil:
		v.UserID, v.Number, v.Quantity = f.Row.UserID, f.Row.Number, f.Row.Quantity
		v.Status = string(f.Row.Status)
	case f.Event != nil:
		v.UserID, v.Number, v.Quantity = f.Event.UserID, f.Event.Number, f.Event.Quantity
	case f.Slot != nil:
		v.UserID, v.Number, v.Quantity = f.Slot.UserID, f.Slot.Number, f.Slot.Quantity
	case f.Wait != nil:
		v.UserID, v.Number, v.Quantity, v.Status = f.Wait.UserID, f.Wait.Number, f.Wait.Quantity, "waiting"
		if !f.Wait.LeftAt.IsZero() {
			v.Status = "left"
		}
	default:
		return v, false
	}
	v.Price = formatMoney(f.Sale.PriceOf(f.ID.String(), v.Quantity))
	v.Why = f.reason(v.Status)
	v.Steps = f.steps()
	return v, true
}

// reason says why an order has its status, and what comes next.
func (f *orderFacts) reason(status string) string {
	switch status {
	case "waiting":
		return "Its buyer is on the waitlist. The order is made by itself as soon as enough units come back and those before " +
			"have theirs, while the sale is open."
	case "left":
		return "Its buyer left the waitlist, so no order will be made."
	case string(pipeline.StatusQueued):
		return f.reasonQueued()
	case string(pipeline.StatusAwaitingPayment):
		if left := f.Row.PayBy.Sub(f.Now); left > 0 {
			return "It waits for its payment, for " + age(left) + " still. Unpaid, it expires by itself then, and its units " +
				"come back."
		}
		return "Its time to pay is over: a worker ends it within a second or so, and its units come back."
	case string(pipeline.StatusConfirmed):
		return "It stands: the sale asks for no payment."
	case string(pipeline.StatusPaid):
		return "It is paid, and stands."
	case string(pipeline.StatusCancelled):
		return "It was cancelled before it was paid. The buyer can order again."
	case string(pipeline.StatusExpired):
		return "It was not paid in time. Its units went back on sale, and the buyer can order again."
	case string(pipeline.StatusRejected):
		return "It was accepted and could not be stored: " + f.Row.Reason + ". There is a dead letter about it."
	case string(pipeline.StatusRefundDue):
		return "Money came for it after it had ended. The money is to be paid back."
	case string(pipeline.StatusReturned):
		return "It was paid, and taken back. The money is to be paid back."
	case string(pipeline.StatusRefunded):
		return "All the money that came for it was paid back."
	}
	return ""
}

func (f *orderFacts) reasonQueued() string {
	switch {
	case f.Event == nil:
		return "Redis has accepted it, and it is neither in the stream nor in Postgres. If that stays, audit the sale."
	case f.Delivery.Worker == "":
		return "It is accepted and on its way: no worker has fetched it yet."
	case f.Lock != nil:
		return fmt.Sprintf("Worker %s is storing it right now.", f.Delivery.Worker)
	default:
		return fmt.Sprintf("Worker %s has it since %s, delivery %d. A dead worker's orders are taken over by the others "+
			"within twenty seconds; the log of a worker says what it waits for.",
			f.Delivery.Worker, age(f.Delivery.Idle), f.Delivery.Count)
	}
}

// steps are what happened, in its order.
func (f *orderFacts) steps() []step {
	all := f.accepting()
	all = append(all, f.stored()...)
	for i := range f.Payments {
		all = append(all, paymentSteps(&f.Payments[i])...)
	}
	for i := range f.Log {
		row := logRowOf(&f.Log[i])
		all = append(all, step{
			At: row.At, What: sentenceStart("operator: " + words(row.Action)), Why: row.Why, Who: row.Actor, order: 4,
			Path: logPath("order", f.ID.String()), Link: "Audit log", Tone: "plain",
		})
	}
	for i := range f.Letters {
		l := &f.Letters[i]
		path := fmt.Sprintf("%sdead-letters/%d", root, l.ID)
		all = append(all, step{
			At: l.CreatedAt, What: "Became a dead letter", Why: l.Reason + ": " + l.Error, Tone: "bad", order: 5,
			Path: path, Link: fmt.Sprintf("Dead letter %d", l.ID),
		})
		if !l.ResolvedAt.IsZero() {
			all = append(all, step{
				At: l.ResolvedAt, What: "Dead letter " + string(l.Resolution), Why: l.Note, Tone: "plain", order: 6, Path: path,
				Link: fmt.Sprintf("Dead letter %d", l.ID),
			})
		}
	}
	for i := range f.Releases {
		all = append(all, releaseSteps(&f.Releases[i])...)
	}
	slices.SortStableFunc(all, func(a, b step) int {
		switch {
		case a.At.IsZero() != b.At.IsZero():
			if a.At.IsZero() {
				return 1
			}
			return -1
		case !a.At.Equal(b.At):
			return a.At.Compare(b.At)
		}
		return a.order - b.order
	})
	return all
}

// accepting is how the order came in.
func (f *orderFacts) accepting() (all []step) {
	if f.Wait != nil {
		all = append(all, step{
			At: f.Wait.JoinedAt, What: "Joined the waitlist", Tone: "info",
			Why: fmt.Sprintf("The sale was sold out. Ticket %s: lower ones are served first.", number(f.Wait.Ticket)),
		})
		if !f.Wait.LeftAt.IsZero() {
			all = append(all, step{At: f.Wait.LeftAt, What: "Left the waitlist", Tone: "plain", Why: "The buyer asked for it."})
		}
	} else if f.ID.Version() == 7 {
		seconds, nanos := f.ID.Time().UnixTime()
		all = append(all, step{
			At: time.Unix(seconds, nanos).UTC(), What: "Asked for", Tone: "plain",
			Why: "The buyer's request reached an api, which made the order's id.",
		})
	}
	var at time.Time
	var sequence int64
	var partition pipeline.Partition
	switch {
	case f.Row != nil:
		at, sequence, partition = f.Row.AcceptedAt, f.Row.Sequence, f.Row.Partition
	case f.Event != nil:
		at, sequence, partition = f.Event.AcceptedAt, f.Event.Sequence, f.Event.Partition
	case f.Slot != nil:
		at, sequence, partition = time.UnixMilli(f.Slot.AcceptedMS).UTC(), f.Slot.Sequence, f.Slot.Partition
	default:
		return all
	}
	why := "Units were free and the buyer held no other order: both were taken in one step."
	if f.Wait != nil {
		why = "Units came back, and this buyer was next on the waitlist."
	}
	return append(all, step{
		At: at, What: "Accepted by Redis", Tone: "good", order: 1,
		Why: fmt.Sprintf("%s Accept %s of the sale, on %s.", why, number(sequence), partition),
	})
}

// stored is what became of the order in Postgres.
func (f *orderFacts) stored() []step {
	if f.Row == nil {
		if f.Event == nil && f.Slot == nil {
			return []step{{What: "To be ordered", Tone: "info", Why: "When the buyer's turn comes."}}
		}
		return []step{{What: "To be stored in Postgres", Tone: "info", Why: f.reasonQueued()}}
	}
	o := f.Row
	all := []step{{
		At: o.PersistedAt, What: "Stored in Postgres", Tone: "good", order: 2,
		Why: age(o.PersistedAt.Sub(o.AcceptedAt)) + " after the accept.",
	}}
	if !o.PaidAt.IsZero() && len(f.Payments) == 0 {
		all = append(all, step{At: o.PaidAt, What: "Paid", Tone: "good", order: 3})
	}
	if !o.ClosedAt.IsZero() {
		all = append(all, step{
			At: o.ClosedAt, What: "Ended: " + words(f.endedAs()), Why: f.endReason(), Tone: toneOf(f.endedAs()), order: 4,
		})
	}
	if o.Status == pipeline.StatusAwaitingPayment {
		all = append(all, step{
			What: "To be paid by " + clock(o.PayBy) + " UTC", Tone: "info", Why: f.reason(string(o.Status)),
		})
	}
	return all
}

// endedAs is how an order ended, before anything became of its money: its release says so.
func (f *orderFacts) endedAs() pipeline.OrderStatus {
	ends := []pipeline.OrderStatus{
		pipeline.StatusExpired, pipeline.StatusCancelled, pipeline.StatusReturned, pipeline.StatusRejected,
	}
	for i := range f.Releases {
		if as := pipeline.OrderStatus(f.Releases[i].Reason); slices.Contains(ends, as) {
			return as
		}
	}
	if f.Row.Reason != "" {
		return pipeline.StatusRejected
	}
	return f.Row.Status
}

func (f *orderFacts) endReason() string {
	switch o := f.Row; f.endedAs() {
	case pipeline.StatusExpired:
		return "It was to be paid by " + clock(o.PayBy) + " UTC, and was not."
	case pipeline.StatusCancelled:
		return "The buyer cancelled it, or an operator did: the audit log has the operators'."
	case pipeline.StatusRejected:
		return sentence(o.Reason)
	case pipeline.StatusReturned:
		return "It was paid, and an operator took it back."
	default:
		return ""
	}
}

func paymentSteps(p *payments.Payment) []step {
	came := step{
		At: p.ReceivedAt, Who: p.Actor, Tone: toneOf(p.Outcome), order: 3, Why: sentence(p.Detail),
		What: "Payment " + words(p.Outcome), Path: root + "payments?sale=" + p.SaleID, Link: "Payments of the sale",
	}
	if money := payments.MoneyText(p.Amount, p.Currency); money != "" {
		came.What += ", " + money
	}
	if p.Outcome == payments.Paid && came.Why == "" {
		came.Why = "The order was awaiting it, and the amount was right."
	}
	if p.PaymentID != "" {
		came.Why += " The provider's id is " + p.PaymentID + "."
	}
	all := []step{came}
	if !p.RefundedAt.IsZero() {
		all = append(all, step{
			At: p.RefundedAt, What: "Paid back", Tone: "good", order: 6,
			Why: sentence(payments.MoneyText(p.RefundedAmount, p.Currency) + ", all of it"),
		})
	} else if p.Outcome == payments.RefundDue {
		all = append(all, step{What: "To be paid back", Tone: "warn", Why: sentence(words(p.Reason))})
	}
	return all
}

func releaseSteps(r *overview.OrderRelease) []step {
	what := plural(r.Quantity, "unit")
	if r.Withdrawn {
		return []step{{
			At: r.CreatedAt, What: "Slot given back", Tone: "plain", order: 7,
			Why: sentence(what + " of it did not go on sale again: " + r.Reason),
		}}
	}
	if r.AppliedAt.IsZero() {
		return []step{{What: what + " to go back on sale", Tone: "info", Why: "A worker gives them to Redis within a second."}}
	}
	return []step{{
		At: r.AppliedAt, What: sentenceStart(what + " back on sale"), Tone: "plain", order: 7,
		Why: sentence("Because: " + r.Reason),
	}}
}
