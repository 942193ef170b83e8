package demo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// honest is a small sale in which all went well: buyers 0 to 4 have an order, 5 to 9 were told sold-out; some asked again.
func honest() (*history, []row) {
	h := newHistory(10)
	var rows []row
	for buyer := range 10 {
		a := ask{buyer: buyer}
		if buyer >= 5 {
			h.told(a, answer{code: codeSoldOut})
			continue
		}
		got := answer{code: codeAccepted, orderID: orderOf(buyer), durability: "fsync", took: time.Millisecond}
		h.told(a, got)
		h.told(a, got)
		h.told(ask{buyer: buyer, key: 1}, answer{code: codeAlreadyOrdered, orderID: orderOf(buyer)})
		rows = append(rows, row{ID: orderOf(buyer), UserID: a.user(), Quantity: 1, Status: "awaiting_payment"})
	}
	h.gaveUp(ask{buyer: 5, key: 2})
	h.told(ask{buyer: 5, key: 2}, answer{code: codeSoldOut})
	return h, rows
}

func orderOf(buyer int) string { return fmt.Sprintf("order-%d", buyer) }

func TestCheckerAcceptsAnHonestSale(t *testing.T) {
	t.Parallel()
	h, rows := honest()
	for _, c := range compare(h, rows, 5) {
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
}

// Each of these is something that a broken pipeline would do. If the checker did not see it, the demo would prove nothing.
func TestCheckerSeesEveryFault(t *testing.T) {
	t.Parallel()
	const (
		everyAccept = "every 202 is exactly one order"
		noStranger  = "no order without a 202"
		soldOut     = "sold out to the unit: no oversell, no undersell"
		oneEach     = "one order per buyer"
		sameOrder   = "asking again never gave another order"
		noLie       = "nobody with an order was told sold-out"
		answered    = "every question was answered"
	)
	for _, fault := range []struct {
		name  string
		cause func(h *history, rows []row) []row
		seen  []string // the checks that must fail, and no others
	}{
		{"an order is lost", func(_ *history, rows []row) []row { return rows[1:] }, []string{everyAccept, soldOut}},
		{"an order is there twice", func(_ *history, rows []row) []row { return append(rows, rows[0]) },
			[]string{everyAccept, soldOut, oneEach}},
		{"a buyer has a second order", func(_ *history, rows []row) []row {
			return append(rows, row{ID: "order-x", UserID: rows[0].UserID, Quantity: 1, Status: "awaiting_payment"})
		}, []string{noStranger, soldOut, oneEach}},
		{"an order appears that nobody was told of", func(_ *history, rows []row) []row {
			return append(rows, row{ID: "order-x", UserID: "buyer-000009", Quantity: 1, Status: "awaiting_payment"})
		}, []string{noStranger, soldOut}},
		{"an order has another buyer", func(_ *history, rows []row) []row { rows[0].UserID = "buyer-000009"; return rows },
			[]string{everyAccept}},
		{"an order has two units", func(_ *history, rows []row) []row { rows[0].Quantity = 2; return rows },
			[]string{everyAccept, soldOut}},
		{"an order is rejected after the accept", func(_ *history, rows []row) []row { rows[0].Status = "rejected"; return rows },
			[]string{everyAccept, soldOut}},
		{"a unit is not sold", func(h *history, rows []row) []row {
			h.buyers[0] = memory{soldOut: true}
			return rows[1:]
		}, []string{soldOut}},
		{"a unit is sold twice", func(h *history, rows []row) []row {
			h.told(ask{buyer: 9, key: 3}, answer{code: codeAccepted, orderID: "order-9", durability: "fsync"})
			h.buyers[9].soldOut = false
			return append(rows, row{ID: "order-9", UserID: "buyer-000009", Quantity: 1, Status: "awaiting_payment"})
		}, []string{soldOut}},
		{"the same key gives another order", func(h *history, rows []row) []row {
			h.told(ask{buyer: 0}, answer{code: codeAccepted, orderID: "order-x", durability: "fsync"})
			return rows
		}, []string{everyAccept, oneEach, sameOrder}},
		{"already-ordered names another order", func(h *history, rows []row) []row {
			h.told(ask{buyer: 0, key: 7}, answer{code: codeAlreadyOrdered, orderID: orderOf(1)})
			return rows
		}, []string{sameOrder}},
		{"already-ordered without an order", func(h *history, rows []row) []row {
			h.told(ask{buyer: 9, key: 7}, answer{code: codeAlreadyOrdered, orderID: orderOf(1)})
			return rows
		}, []string{sameOrder}},
		{"sold-out for a buyer with an order", func(h *history, rows []row) []row {
			h.told(ask{buyer: 0, key: 7}, answer{code: codeSoldOut})
			return rows
		}, []string{noLie}},
		{"a client never learns what it has", func(h *history, rows []row) []row { h.gaveUp(ask{buyer: 9, key: 7}); return rows },
			[]string{answered}},
		{"an answer that nobody should get", func(h *history, rows []row) []row {
			h.never(ask{buyer: 9}, answer{code: "internal", err: errors.New("status 500")})
			return rows
		}, []string{answered}},
		{"a promise that is weaker than fsync", func(h *history, rows []row) []row {
			h.told(ask{buyer: 0}, answer{code: codeAccepted, orderID: orderOf(0), durability: "memory"})
			return rows
		}, []string{answered}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			h, rows := honest()
			rows = fault.cause(h, rows)
			var seen []string
			for _, c := range compare(h, rows, 5) {
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
