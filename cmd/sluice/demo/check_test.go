package demo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// honest is a small sale in which all went well. Buyers 0 to 4 have an order, and paid, paid and told it twice, cancelled, forgot,
// sent a wrong amount. All others were told sold-out; 5 to 9 joined the waitlist in this order, 7 left, and 5, 6 and 8 were served
// and paid. Some asked again.
func honest() (*history, books) {
	h := newHistory(11)
	var b books
	order := func(buyer int, id, status string) {
		r := row{ID: id, UserID: (ask{buyer: buyer}).user(), Quantity: 1, Status: status, Sequence: int64(len(b.rows) + 1)}
		if status == statusPaid {
			r.PaymentID = "pay-" + id
			b.payments = append(b.payments, payment{WebhookID: "msg-" + id, OrderID: id, Outcome: moneyPaid, Amount: unitPrice})
		}
		b.rows = append(b.rows, r)
	}
	for buyer, status := range []string{statusPaid, statusPaid, statusCancelled, statusExpired, statusExpired} {
		a := ask{buyer: buyer}
		got := answer{code: codeAccepted, orderID: orderOf(buyer), durability: "fsync", took: time.Millisecond}
		h.told(a, got)
		h.told(a, got)
		h.told(ask{buyer: buyer, key: 1}, answer{code: codeAlreadyOrdered, orderID: orderOf(buyer)})
		order(buyer, orderOf(buyer), status)
	}
	for buyer := 5; buyer < 11; buyer++ {
		h.told(ask{buyer: buyer}, answer{code: codeSoldOut})
	}
	h.gaveUp(ask{buyer: 5, key: 2})
	h.told(ask{buyer: 5, key: 2}, answer{code: codeSoldOut})
	for place := range 5 {
		h.joined(5+place, time.Now(), reply{status: 202, orderID: orderOf(5 + place), position: place + 1})
		at := time.Now().Add(time.Duration(place) * time.Second) // one has the answer before the next one asks
		h.buyers[5+place].stay.asked, h.buyers[5+place].stay.answered = at, at.Add(time.Millisecond)
	}
	h.changes(time.Now())
	h.leftList(7, reply{status: 204})
	for _, buyer := range []int{0, 1, 1} {
		h.paid(pledgeOf(buyer), reply{status: 200, outcome: moneyPaid, body: orderOf(buyer)})
	}
	h.cancelled(pledgeOf(2), reply{status: 200, state: statusCancelled})
	h.bad(pledgeOf(4), reply{status: 422, code: moneyRefused})
	b.payments = append(b.payments, payment{WebhookID: "msg-order-4-wrong", OrderID: orderOf(4), Outcome: "refused", Reason: moneyRefused, Amount: unitPrice - wrongBy})
	for _, buyer := range []int{5, 6, 8} {
		order(buyer, orderOf(buyer), statusPaid)
		h.looked(buyer, reply{status: 200, state: "ordered", orderID: orderOf(buyer)})
		h.paid(pledgeOf(buyer), reply{status: 200, outcome: moneyPaid})
		h.told(ask{buyer: buyer, key: 3}, answer{code: codeAlreadyOrdered, orderID: orderOf(buyer)})
	}
	h.looked(9, reply{status: 200, state: "waiting", orderID: orderOf(9)})
	return h, b
}

func pledgeOf(buyer int) pledge { return pledge{buyer: buyer, orderID: orderOf(buyer)} }

func orderOf(buyer int) string { return fmt.Sprintf("order-%d", buyer) }

func TestCheckerAcceptsAnHonestSale(t *testing.T) {
	t.Parallel()
	h, b := honest()
	for _, c := range compare(h, b, 5) {
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
}

// Names of checks.
const (
	everyAccept = "every 202 is exactly one order"
	noStranger  = "no order without a 202"
	soldOut     = "the rush sold out to the unit: no oversell, no undersell"
	oneEach     = "one order per buyer"
	sameOrder   = "asking again never gave another order"
	noLie       = "nobody with an order was told sold-out"
	answered    = "every question was answered"
	onePayment  = "every paid order has exactly one payment"
	countedOnce = "a payment told twice counted once"
	noBadMoney  = "wrong and forged payments changed nothing"
	asTold      = "every order ended as was told"
	fair        = "units went to those who waited, in the order in which they had joined"
	turnsTold   = "whoever's turn came has the order, whoever left has none"
	unitsAddUp  = "units paid + units left = units for sale"
)

// Each of these is something that a broken pipeline would do. If the checker did not see it, the demo would prove nothing.
func TestCheckerSeesEveryFault(t *testing.T) {
	t.Parallel()
	stranger := func(user string) row {
		return row{ID: "order-x", UserID: user, Quantity: 1, Status: statusExpired, Sequence: 99}
	}
	for _, fault := range []struct {
		name  string
		cause func(h *history, b *books)
		seen  []string // the checks that must fail, and no others
	}{
		{"an order is lost", func(_ *history, b *books) { b.rows = slices.Delete(b.rows, 3, 4) }, []string{everyAccept, soldOut}},
		{"an order is there twice", func(_ *history, b *books) { b.rows = append(b.rows, b.rows[3]) },
			[]string{everyAccept, soldOut, oneEach}},
		{"a buyer has a second order", func(_ *history, b *books) { b.rows = append(b.rows, stranger(b.rows[0].UserID)) },
			[]string{noStranger, oneEach}},
		{"an order appears that nobody was told of", func(_ *history, b *books) { b.rows = append(b.rows, stranger("buyer-000010")) },
			[]string{noStranger}},
		{"an order has another buyer", func(_ *history, b *books) { b.rows[0].UserID = "buyer-000010" }, []string{everyAccept}},
		{"an order has two units", func(_ *history, b *books) { b.rows[3].Quantity = 2 }, []string{everyAccept, soldOut}},
		{"an order is rejected after the accept", func(_ *history, b *books) { b.rows[3].Status = statusRejected },
			[]string{everyAccept, soldOut, asTold}},
		{"a unit is not sold in the rush", func(h *history, b *books) {
			h.buyers[3] = memory{soldOut: true}
			b.rows = slices.Delete(b.rows, 3, 4)
		}, []string{soldOut}},
		{"a unit is sold twice", func(h *history, b *books) {
			h.told(ask{buyer: 10, key: 3}, answer{code: codeAccepted, orderID: "order-x", durability: "fsync"})
			h.buyers[10].soldOut = false
			b.rows = append(b.rows, stranger("buyer-000010"))
		}, []string{soldOut}},
		{"the same key gives another order", func(h *history, _ *books) {
			h.told(ask{buyer: 0}, answer{code: codeAccepted, orderID: "order-x", durability: "fsync"})
		}, []string{everyAccept, oneEach, sameOrder}},
		{"already-ordered names another order", func(h *history, _ *books) {
			h.told(ask{buyer: 0, key: 7}, answer{code: codeAlreadyOrdered, orderID: orderOf(1)})
		}, []string{sameOrder}},
		{"already-ordered without an order", func(h *history, _ *books) {
			h.told(ask{buyer: 10, key: 7}, answer{code: codeAlreadyOrdered, orderID: orderOf(1)})
		}, []string{sameOrder}},
		{"already-ordered for one who still waits", func(h *history, _ *books) {
			h.told(ask{buyer: 9, key: 7}, answer{code: codeAlreadyOrdered, orderID: orderOf(9)})
		}, []string{sameOrder}},
		{"sold-out for a buyer with an order", func(h *history, _ *books) {
			h.told(ask{buyer: 0, key: 7}, answer{code: codeSoldOut})
		}, []string{noLie}},
		{"a client never learns what it has", func(h *history, _ *books) { h.gaveUp(ask{buyer: 9, key: 7}) }, []string{answered}},
		{"an answer that nobody should get", func(h *history, _ *books) {
			h.never(ask{buyer: 9}, answer{code: "internal", err: errors.New("status 500")})
		}, []string{answered}},
		{"a promise that is weaker than fsync", func(h *history, _ *books) {
			h.told(ask{buyer: 0}, answer{code: codeAccepted, orderID: orderOf(0), durability: "memory"})
		}, []string{answered}},

		{"a paid order is set back", func(_ *history, b *books) {
			b.rows[0].Status, b.rows[0].PaymentID = "awaiting_payment", ""
		}, []string{onePayment, asTold, unitsAddUp}},
		{"a paid order expires and its unit is for sale again", func(_ *history, b *books) {
			b.rows[0].Status, b.left = statusExpired, 1
		}, []string{onePayment, asTold}},
		{"a payment is forgotten", func(_ *history, b *books) { b.payments = b.payments[1:] }, []string{onePayment}},
		{"a payment counts twice", func(_ *history, b *books) { b.payments = append(b.payments, b.payments[0]) }, []string{onePayment}},
		{"a payment has another amount", func(_ *history, b *books) { b.payments[0].Amount-- }, []string{onePayment}},
		{"a payment of no order", func(_ *history, b *books) {
			b.payments = append(b.payments, payment{OrderID: "order-x", Outcome: moneyPaid, Amount: unitPrice})
		}, []string{onePayment}},
		{"a repeated webhook has another answer", func(h *history, _ *books) {
			h.paid(pledgeOf(0), reply{status: 200, outcome: moneyPaid, body: "other"})
		}, []string{countedOnce}},
		{"the same money under another name counts again", func(h *history, _ *books) {
			h.again(pledgeOf(0), reply{status: 200, outcome: moneyRefundDue})
		}, []string{countedOnce}},
		{"a wrong amount pays", func(_ *history, b *books) {
			b.rows[4].Status, b.rows[4].PaymentID = statusPaid, "pay-order-4-wrong"
		}, []string{onePayment, noBadMoney, asTold, unitsAddUp}},
		{"a wrong amount is recorded as good", func(_ *history, b *books) {
			b.payments[2].Outcome, b.payments[2].Reason = moneyRefundDue, "already-paid"
		}, []string{noBadMoney}},
		{"a forged payment is recorded", func(_ *history, b *books) {
			b.payments = append(b.payments, payment{WebhookID: "msg-x-forged", OrderID: orderOf(3), Outcome: "refused", Reason: moneyRefused})
		}, []string{noBadMoney}},
		{"a forged payment is believed", func(h *history, _ *books) {
			h.bad(pledge{buyer: 3, orderID: orderOf(3), fate: isForged}, reply{status: 200, outcome: moneyPaid})
		}, []string{answered}},
		{"a cancelled order expires", func(_ *history, b *books) { b.rows[2].Status = statusExpired }, []string{asTold}},
		{"an order is cancelled by nobody", func(_ *history, b *books) { b.rows[3].Status = statusCancelled }, []string{asTold}},
		{"a unit leaks", func(_ *history, b *books) { b.left = -1 }, []string{unitsAddUp}},
		{"a unit appears", func(_ *history, b *books) { b.left = 1 }, []string{unitsAddUp}},
		{"somebody who waits is overtaken", func(_ *history, b *books) {
			b.rows[5].Sequence, b.rows[6].Sequence = b.rows[6].Sequence, b.rows[5].Sequence
		}, []string{fair}},
		{"somebody is overtaken by one who asked later, at places that nobody knows", func(h *history, b *books) {
			for buyer := range h.buyers {
				h.buyers[buyer].stay.position = 0
			}
			b.rows[5].Sequence, b.rows[6].Sequence = b.rows[6].Sequence, b.rows[5].Sequence
		}, []string{fair}},
		{"somebody who waits is passed over", func(h *history, b *books) {
			b.rows[7].ID, b.rows[7].UserID, b.rows[7].PaymentID = orderOf(9), "buyer-000009", "pay-order-9"
			b.payments[len(b.payments)-1].OrderID = orderOf(9)
			h.buyers[8].stay.turn, h.buyers[9].stay.turn = false, true
			h.ends[orderOf(9)] = h.ends[orderOf(8)]
			h.buyers[8].named = nil
		}, []string{fair}},
		{"somebody who left is served", func(_ *history, b *books) {
			b.rows = append(b.rows, row{ID: orderOf(7), UserID: "buyer-000007", Quantity: 1, Status: statusExpired, Sequence: 99})
		}, []string{turnsTold}},
		{"somebody is served and not told", func(h *history, _ *books) {
			h.buyers[8].stay.turn, h.buyers[8].named = false, nil
		}, []string{turnsTold}},
		{"somebody is told and not served", func(h *history, _ *books) { h.buyers[9].stay.turn = true }, []string{turnsTold}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			h, b := honest()
			fault.cause(h, &b)
			var seen []string
			for _, c := range compare(h, b, 5) {
				if !c.OK {
					seen = append(seen, c.Name)
				}
			}
			if !slices.Equal(seen, fault.seen) {
				t.Errorf("got %q, want %q", seen, fault.seen)
			}
		})
	}
}

func TestRescueIsChecked(t *testing.T) {
	t.Parallel()
	good := Accident{InHand: 3, Takeovers: []Takeover{{Worker: "worker-2", Orders: 3}}, PersistedMS: 5000}
	if c := good.rescued(); !c.OK {
		t.Errorf("a good rescue fails: %s", c.Detail)
	}
	for name, spoil := range map[string]func(a *Accident){
		"nothing in hand":    func(a *Accident) { a.InHand = 0 },
		"not all taken over": func(a *Accident) { a.Takeovers[0].Orders = 2 },
		"nobody took over":   func(a *Accident) { a.Takeovers = nil },
		"never persisted":    func(a *Accident) { a.PersistedMS = 0 },
	} {
		bad := good
		bad.Takeovers = slices.Clone(good.Takeovers)
		spoil(&bad)
		if c := bad.rescued(); c.OK {
			t.Errorf("%s: it passes: %s", name, c.Detail)
		}
	}
	if c := (*Accident)(nil).rescued(); c.OK {
		t.Error("no accident at all passes")
	}
}

func TestReadAnswer(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]answer{
		`{"order_id":"o1","status":"queued","durability":"fsync"}`: {code: codeAccepted, orderID: "o1", durability: "fsync"},
	} {
		if got, err := readAnswer(202, []byte(body)); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if got, err := readAnswer(409, []byte(`{"code":"already-ordered","status":409,"order_id":"o1"}`)); err != nil ||
		got != (answer{code: codeAlreadyOrdered, orderID: "o1"}) {
		t.Errorf("got %+v, %v, want the code and the order", got, err)
	}
	for status, body := range map[int]string{202: `{}`, 200: `{"order_id":"o1"}`, 409: `sold out`, 500: ``, 503: `{"status":503}`} {
		if got, err := readAnswer(status, []byte(body)); err == nil {
			t.Errorf("%d %q: got %+v, want an error", status, body, got)
		}
	}
	if definite := (answer{code: "internal"}).definite(); definite {
		t.Error("an internal error counts as an answer")
	}
	if !passing(answer{code: "overloaded"}) || !passing(answer{}) || passing(answer{code: "invalid-request"}) {
		t.Error("it is not known when asking again helps")
	}
}

func TestBar(t *testing.T) {
	t.Parallel()
	for done, want := range map[int]int{0: 0, 50: 12, 100: 24, 200: 24} {
		if got := strings.Count(bar(done, 100), "█"); got != want {
			t.Errorf("bar(%d, 100): got %d full, want %d", done, got, want)
		}
	}
	if got := clip("äöü", 2); got != "äö" {
		t.Errorf("got %q, want two characters", got)
	}
}
