package buyers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

// honest is a small sale in which all went well. Buyers 0 to 4 have an order, and paid, paid and reported it twice,
// cancelled, forgot, sent a wrong amount. All others got sold-out; 5 to 9 joined the waitlist in this order, 7 left,
// and 5, 6 and 8 were served and paid. Some asked again.
func honest() (*History, *Stores) {
	h := NewHistory()
	b := &Stores{sales: []saleState{{id: saleID, total: 5}}}
	order := func(buyer uint32, id, status string) {
		r := Order{
			Sale: saleID, ID: id, User: UserOf(buyer), Quantity: 1, Status: status,
			Sequence: int64(len(b.Orders) + 1),
		}
		if status == statusPaid {
			r.PaymentID = "pay-" + id
			b.payments = append(b.payments,
				paymentRecord{WebhookID: "msg-" + id, OrderID: id, Outcome: PaymentPaid, Amount: price})
		}
		b.Orders = append(b.Orders, r)
	}
	for buyer, status := range []string{statusPaid, statusPaid, statusCancelled, statusExpired, statusExpired} {
		id := orderOf(uint32(buyer))
		h.note(uint32(buyer), 0, Accepted, id)
		h.note(uint32(buyer), 0, Accepted, id)
		h.note(uint32(buyer), 1, AlreadyOrdered, id)
		order(uint32(buyer), id, status)
	}
	for buyer := uint32(5); buyer < 11; buyer++ {
		h.note(buyer, 0, SoldOut, "")
	}
	h.giveUp(5, 2)
	h.note(5, 2, SoldOut, "")
	for place := range 5 {
		buyer := uint32(5 + place)
		h.noteJoined(buyer, time.Now(), Answer{Status: 202, OrderID: orderOf(buyer), Position: place + 1})
		at := time.Now().Add(time.Duration(place) * time.Second) // one has the answer before the next one asks
		h.entries[buyer].asked, h.entries[buyer].answered = at, at.Add(time.Millisecond)
	}
	h.ChangesFrom(time.Now())
	h.noteLeft(7, Answer{Status: 204})
	for _, buyer := range []uint32{0, 1, 1} {
		h.notePaid(orderOf(buyer), Answer{Status: 200, Payment: PaymentPaid, Body: orderOf(buyer)})
	}
	h.noteCancelled(orderOf(2), Answer{Status: 200, State: statusCancelled})
	h.noteBadPayment(orderOf(4), false, Answer{Status: 422, Code: paymentRefused})
	b.payments = append(b.payments,
		paymentRecord{
			WebhookID: "msg-order-4-wrong", OrderID: orderOf(4), Outcome: "refused", Reason: paymentRefused,
			Amount: price - wrongBy,
		})
	for _, buyer := range []uint32{5, 6, 8} {
		order(buyer, orderOf(buyer), statusPaid)
		h.noteTurn(buyer, Answer{Status: 200, State: "ordered", OrderID: orderOf(buyer)})
		h.notePaid(orderOf(buyer), Answer{Status: 200, Payment: PaymentPaid})
		h.note(buyer, 3, AlreadyOrdered, orderOf(buyer))
	}
	h.noteTurn(9, Answer{Status: 200, State: "waiting", OrderID: orderOf(9)})
	return h, b
}

// note adds a request and its outcome.
func (h *History) note(buyer uint32, key int16, o Outcome, order string) {
	h.Note(Fact{
		Request: Request{Sale: saleID, Buyer: buyer, Key: key, Quantity: 1}, Outcome: o, Order: order,
		Took: time.Millisecond,
	})
}

// giveUp adds a request that its client abandoned.
func (h *History) giveUp(buyer uint32, key int16) {
	h.Note(Fact{Request: Request{Sale: saleID, Buyer: buyer, Key: key, Quantity: 1, Abandon: true}})
}

// forget takes a buyer's answers of a kind back.
func (h *History) forget(buyer uint32, kinds ...Outcome) {
	h.facts = slices.DeleteFunc(h.facts,
		func(f Fact) bool { return f.Buyer == buyer && slices.Contains(kinds, f.Outcome) })
}

// checks are those of the sale of five units.
func checks(h *History, b *Stores) []Check {
	return Prove(h, b, Terms{Answered: true, Stock: 5, Price: price, Currency: "EUR"}).Checks()
}

const (
	saleID = "demo"
	price  = 1999
)

func orderOf(buyer uint32) string { return fmt.Sprintf("order-%d", buyer) }

func TestCheckerAcceptsAnHonestSale(t *testing.T) {
	t.Parallel()
	h, b := honest()
	for _, c := range checks(h, b) {
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
}

// Each of these is something that a broken pipeline would do. If the checker did not see it, the demo would prove
// nothing.
func TestCheckerSeesEveryFault(t *testing.T) {
	t.Parallel()
	stranger := func(user string) Order {
		return Order{Sale: saleID, ID: "order-x", User: user, Quantity: 1, Status: statusExpired, Sequence: 99}
	}
	for _, fault := range []struct {
		name  string
		cause func(h *History, b *Stores)
		seen  []rule // the checks that must fail, and no others
	}{
		{
			"an order is lost", func(_ *History, b *Stores) { b.Orders = slices.Delete(b.Orders, 3, 4) },
			[]rule{ruleAccepted, ruleSoldOut},
		},
		{
			"an order is there twice", func(_ *History, b *Stores) { b.Orders = append(b.Orders, b.Orders[3]) },
			[]rule{ruleAccepted, ruleSoldOut, ruleOneEach},
		},
		{
			"a buyer has a second order",
			func(_ *History, b *Stores) { b.Orders = append(b.Orders, stranger(b.Orders[0].User)) },
			[]rule{ruleNoStranger, ruleOneEach},
		},
		{
			"an order appears that no answer named",
			func(_ *History, b *Stores) { b.Orders = append(b.Orders, stranger("buyer-000010")) },
			[]rule{ruleNoStranger},
		},
		{
			"an order has another buyer", func(_ *History, b *Stores) { b.Orders[0].User = "buyer-000010" },
			[]rule{ruleAccepted},
		},
		{
			"an order has two units", func(_ *History, b *Stores) { b.Orders[3].Quantity = 2 },
			[]rule{ruleAccepted, ruleSoldOut},
		},
		{
			"an order is rejected after the accept", func(_ *History, b *Stores) { b.Orders[3].Status = statusRejected },
			[]rule{ruleAccepted, ruleSoldOut, ruleEnds},
		},
		{"a unit is not sold in the rush", func(h *History, b *Stores) {
			h.forget(3, Accepted, AlreadyOrdered)
			h.note(3, 0, SoldOut, "")
			b.Orders = slices.Delete(b.Orders, 3, 4)
		}, []rule{ruleSoldOut}},
		{"a unit is sold twice", func(h *History, b *Stores) {
			h.note(10, 3, Accepted, "order-x")
			h.forget(10, SoldOut)
			b.Orders = append(b.Orders, stranger("buyer-000010"))
		}, []rule{ruleSoldOut}},
		{"the same key gives another order", func(h *History, _ *Stores) {
			h.note(0, 0, Accepted, "order-x")
		}, []rule{ruleAccepted, ruleOneEach, ruleSameOrder}},
		{"already-ordered names another order", func(h *History, _ *Stores) {
			h.note(0, 7, AlreadyOrdered, orderOf(1))
		}, []rule{ruleSameOrder}},
		{"already-ordered without an order", func(h *History, _ *Stores) {
			h.note(10, 7, AlreadyOrdered, orderOf(1))
		}, []rule{ruleSameOrder}},
		{"already-ordered for one who still waits", func(h *History, _ *Stores) {
			h.note(9, 7, AlreadyOrdered, orderOf(9))
		}, []rule{ruleSameOrder}},
		{"sold-out for a buyer with an order", func(h *History, _ *Stores) {
			h.note(0, 7, SoldOut, "")
		}, []rule{ruleNoLie}},
		{"a client never learns what it has", func(h *History, _ *Stores) { h.giveUp(9, 7) }, []rule{ruleAnswered}},
		{"an answer that nobody should get", func(h *History, _ *Stores) {
			examine(h, Answer{Status: 500, Code: "internal"})
		}, []rule{ruleAnswered}},
		{"a promise that is weaker than fsync", func(h *History, _ *Stores) {
			examine(h, Answer{
				Status: 202, State: "queued", OrderID: orderOf(0), Number: 1, Quantity: 1,
				Durability: "memory",
			})
		}, []rule{ruleAnswered}},

		{"a paid order is set back", func(_ *History, b *Stores) {
			b.Orders[0].Status, b.Orders[0].PaymentID = "awaiting_payment", ""
		}, []rule{ruleOnePayment, ruleEnds, ruleUnits}},
		{"a paid order expires and its unit is for sale again", func(_ *History, b *Stores) {
			b.Orders[0].Status, b.sales[0].stock = statusExpired, 1
		}, []rule{ruleOnePayment, ruleEnds}},
		{"a payment is forgotten", func(_ *History, b *Stores) { b.payments = b.payments[1:] }, []rule{ruleOnePayment}},
		{
			"a payment counts twice", func(_ *History, b *Stores) { b.payments = append(b.payments, b.payments[0]) },
			[]rule{ruleOnePayment},
		},
		{
			"a payment has another amount", func(_ *History, b *Stores) { b.payments[0].Amount-- },
			[]rule{ruleOnePayment},
		},
		{"a payment of no order", func(_ *History, b *Stores) {
			b.payments = append(b.payments, paymentRecord{OrderID: "order-x", Outcome: PaymentPaid, Amount: price})
		}, []rule{ruleOnePayment}},
		{"a repeated webhook has another answer", func(h *History, _ *Stores) {
			h.notePaid(orderOf(0), Answer{Status: 200, Payment: PaymentPaid, Body: "other"})
		}, []rule{ruleOnce}},
		{"the same money under another name counts again", func(h *History, _ *Stores) {
			h.notePaidAgain(orderOf(0), Answer{Status: 200, Payment: PaymentRefundDue})
		}, []rule{ruleOnce}},
		{"a wrong amount pays", func(_ *History, b *Stores) {
			b.Orders[4].Status, b.Orders[4].PaymentID = statusPaid, "pay-order-4-wrong"
		}, []rule{ruleOnePayment, ruleBadMoney, ruleEnds, ruleUnits}},
		{"a wrong amount is recorded as good", func(_ *History, b *Stores) {
			b.payments[2].Outcome, b.payments[2].Reason = PaymentRefundDue, "already-paid"
		}, []rule{ruleBadMoney}},
		{"a forged payment is recorded", func(_ *History, b *Stores) {
			b.payments = append(b.payments,
				paymentRecord{
					WebhookID: "msg-x-forged", OrderID: orderOf(3), Outcome: "refused",
					Reason: paymentRefused,
				})
		}, []rule{ruleBadMoney}},
		{"a forged payment is believed", func(h *History, _ *Stores) {
			h.noteBadPayment(orderOf(3), true, Answer{Status: 200, Payment: PaymentPaid})
		}, []rule{ruleAnswered}},
		{
			"a cancelled order expires", func(_ *History, b *Stores) { b.Orders[2].Status = statusExpired },
			[]rule{ruleEnds},
		},
		{
			"an order is cancelled by nobody", func(_ *History, b *Stores) { b.Orders[3].Status = statusCancelled },
			[]rule{ruleEnds},
		},
		{"a unit leaks", func(_ *History, b *Stores) { b.sales[0].stock = -1 }, []rule{ruleUnits}},
		{"a unit appears", func(_ *History, b *Stores) { b.sales[0].stock = 1 }, []rule{ruleUnits}},
		{"somebody who waits is overtaken", func(_ *History, b *Stores) {
			b.Orders[5].Sequence, b.Orders[6].Sequence = b.Orders[6].Sequence, b.Orders[5].Sequence
		}, []rule{ruleInOrder}},
		{"somebody is overtaken by one who asked later, at places that nobody knows", func(h *History, b *Stores) {
			for buyer := range h.entries {
				h.entries[buyer].position = 0
			}
			b.Orders[5].Sequence, b.Orders[6].Sequence = b.Orders[6].Sequence, b.Orders[5].Sequence
		}, []rule{ruleInOrder}},
		{"somebody who waits is passed over", func(h *History, b *Stores) {
			b.Orders[7].ID, b.Orders[7].User, b.Orders[7].PaymentID = orderOf(9), "buyer-000009", "pay-order-9"
			b.payments[len(b.payments)-1].OrderID = orderOf(9)
			h.entries[8].turn, h.entries[9].turn = false, true
			h.settled[orderOf(9)] = h.settled[orderOf(8)]
			h.forget(8, AlreadyOrdered)
		}, []rule{ruleInOrder}},
		{"somebody who left is served", func(_ *History, b *Stores) {
			b.Orders = append(b.Orders,
				Order{
					Sale: saleID, ID: orderOf(7), User: "buyer-000007", Quantity: 1, Status: statusExpired,
					Sequence: 99,
				})
		}, []rule{ruleTurns}},
		{"somebody is served and does not know", func(h *History, _ *Stores) {
			h.entries[8].turn = false
			h.forget(8, AlreadyOrdered)
		}, []rule{ruleTurns}},
		{
			"somebody's turn comes and nothing is served", func(h *History, _ *Stores) { h.entries[9].turn = true },
			[]rule{ruleTurns},
		},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			h, b := honest()
			fault.cause(h, b)
			var seen []rule
			for _, c := range checks(h, b) {
				if !c.OK {
					seen = append(seen, rule(c.Name))
				}
			}
			if !slices.Equal(seen, fault.seen) {
				t.Errorf("got %q, want %q", seen, fault.seen)
			}
		})
	}
}

// TestProofExcusesWhatIsTold: after Redis lost data an order may be rejected with the letter for it, and only then.
func TestProofExcusesWhatIsTold(t *testing.T) {
	t.Parallel()
	order, number := uuid.NewString(), int64(5)
	h := NewHistory()
	h.Note(Fact{Request: Request{Sale: "big", Buyer: 1, Quantity: 1}, Outcome: Accepted, Order: order, Number: number})
	b := &Stores{
		Orders: []Order{{
			Sale: "big", ID: order, Number: &number, User: UserOf(1), Quantity: 1, Status: statusRejected,
			Reason: reasonRedisLost,
		}},
		letters: []letter{{Entry: "1-1", Sale: "big", Order: order, Reason: reasonRedisLost}},
		sales:   []saleState{{id: "big", total: 10, stock: 10, slots: map[string]slot{}}},
	}
	if p := Prove(h, b, Terms{Lossy: true}); len(p.Findings) != 0 || p.Refused != 1 {
		t.Errorf("got %+v and %d taken back, want none and 1", p.Findings, p.Refused)
	}
	if p := Prove(h, b, Terms{}); p.Counts()[Lost] != 1 {
		t.Errorf("got %+v without a loss of Redis, want a lost order", p.Findings)
	}
	b.letters = nil
	if p := Prove(h, b, Terms{Lossy: true}); p.Counts()[Lost] != 1 {
		t.Errorf("got %+v without a letter, want a lost order", p.Findings)
	}
}

// examine has a client of buyer 0 take an answer to an order request.
func examine(h *History, a Answer) {
	r := Request{Sale: saleID, Quantity: 1}
	c := &Client{History: h, opts: Options{Durability: "fsync"}}
	h.note(r.Buyer, r.Key, c.examine(r, a), a.OrderID)
}

// What an API said in a split brain is no lie; the same answer at another time is.
func TestSoldOutInASplitBrain(t *testing.T) {
	t.Parallel()
	h, b := honest()
	h.note(0, 9, SoldOut, "")
	h.facts[len(h.facts)-1].At = 7 * time.Second
	for _, test := range []struct {
		blind []Span
		lies  int
	}{
		{nil, 1},
		{[]Span{{0, 6 * time.Second}, {8 * time.Second, 9 * time.Second}}, 1},
		{[]Span{{0, time.Second}, {6 * time.Second, 8 * time.Second}}, 0},
	} {
		if got := Prove(h, b, Terms{Blind: test.blind}).Counts()[Contradicted]; got != test.lies {
			t.Errorf("blind %v: got %d contradictions, want %d", test.blind, got, test.lies)
		}
	}
}
