package db_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
	"sluice/pipeline/sales"
)

// to is a pointer to a value, as fields of a change are.
func to[T any](value T) *T { return &value }

// askedAt is the id of an order that was asked for at an instant, in Unix ms.
func askedAt(ms int64) string {
	id := uuid.Must(uuid.NewV7())
	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(ms)) //nolint:gosec // 48 bits
	copy(id[:6], stamp[2:])
	return id.String()
}

// Each thing that can be edited is one version, one line of the audit log with what was and what is, and one event;
// the same once more is nothing.
func TestEditSale(t *testing.T) {
	f := setup(t)
	f.endpoint()
	sale := f.priced("drop", 10)
	for _, step := range []struct {
		change pipeline.SaleChange
		edited string // in the event; empty: no event
		logged string
	}{
		{pipeline.SaleChange{Title: to("Lamp")}, `["title"]`, "title A thing>Lamp"},
		{pipeline.SaleChange{MaxQuantity: to(2)}, `["max_quantity"]`, "max_quantity 10>2"},
		{pipeline.SaleChange{Waitlist: to(int64(7))}, `["waitlist"]`, "waitlist 0>7"},
		{pipeline.SaleChange{UnitPrice: to(int64(2499))}, `["unit_price"]`, "unit_price 1999>2499"},
		{pipeline.SaleChange{Currency: to("CHF")}, `["currency"]`, "currency EUR>CHF"},
		{pipeline.SaleChange{EntryTicket: to(true)}, `["entry_ticket"]`, "entry_ticket false>true"},
		{pipeline.SaleChange{EntrySpread: to(7 * time.Second)}, `["entry_spread_seconds"]`, "entry_spread_ms 0>7000"},
		{pipeline.SaleChange{Note: to("agreed on Monday")}, "", "note >agreed on Monday"},
		{
			pipeline.SaleChange{Title: to("Lamp 2"), UnitPrice: to(int64(5)), Currency: to("EUR"), IfVersion: 9},
			`["title", "unit_price", "currency"]`, "title Lamp>Lamp 2",
		},
	} {
		f.exec(`delete from outbox`)
		for range 2 {
			after, err := f.store.ChangeSale(f.ctx(), "drop", "Zoë", step.change)
			if err != nil || after.Version != sale.Version+1 {
				t.Fatalf("%s: got %+v, %v", step.logged, after, err)
			}
		}
		sale = f.stored("drop")
		field, _, _ := strings.Cut(step.logged, " ")
		got := one[string](f, `
			select $1 || ' ' || coalesce(detail -> 'before' ->> $1, '') || '>' || (detail -> 'after' ->> $1)
			from audit_log where action = 'edit' and actor = 'Zoë' order by id desc limit 1`, field)
		if got != step.logged {
			t.Errorf("audit log: got %q, want %q", got, step.logged)
		}
		events := one[string](f, `select coalesce(string_agg(type || ' ' || (data ->> 'edited'), ';'), '') from outbox`)
		if want := strings.TrimSuffix("sale.edited "+step.edited, "sale.edited "); events != want {
			t.Errorf("events: got %q, want %q", events, want)
		}
	}
	if got := one[int](f, `select count(*) from audit_log where action = 'edit'`); got != 9 {
		t.Errorf("got %d lines, want 9", got)
	}
}

func (f *fixture) stored(id string) *pipeline.Sale {
	f.Helper()
	sale, err := f.store.Sale(f.ctx(), id)
	if err != nil {
		f.Fatal(err)
	}
	return sale
}

func TestEditsThatAreRefused(t *testing.T) {
	f := setup(t)
	waits := newSale("waits", 10)
	waits.Waitlist, waits.UnitPrice, waits.Currency = 5, 1999, "EUR"
	f.create(waits)
	f.sale("drop", 10)
	f.change("drop", pipeline.SaleChange{Title: to("two")})
	f.sale("over", 10)
	f.change("over", state(pipeline.SaleClosed))
	before := f.state()
	for name, try := range map[string]struct {
		id     string
		change pipeline.SaleChange
		want   pipeline.Kind
	}{
		"no title":         {"drop", pipeline.SaleChange{Title: to("")}, pipeline.KindInvalid},
		"no units":         {"drop", pipeline.SaleChange{MaxQuantity: to(0)}, pipeline.KindInvalid},
		"no currency":      {"drop", pipeline.SaleChange{UnitPrice: to(int64(5))}, pipeline.KindInvalid},
		"a long note":      {"drop", pipeline.SaleChange{Note: to(strings.Repeat("x", 1001))}, pipeline.KindInvalid},
		"a line in a note": {"drop", pipeline.SaleChange{Note: to("a\nb")}, pipeline.KindInvalid},
		"people wait":      {"waits", pipeline.SaleChange{Waitlist: to(int64(0))}, pipeline.KindInvalid},
		"price away":       {"waits", pipeline.SaleChange{UnitPrice: to(int64(0)), Currency: to("")}, pipeline.KindInvalid},
		"another version":  {"drop", pipeline.SaleChange{Title: to("x"), IfVersion: 1}, pipeline.KindConflict},
		"closed":           {"over", pipeline.SaleChange{Title: to("x"), Note: to("y")}, pipeline.KindConflict},
	} {
		_, err := f.store.ChangeSale(f.ctx(), try.id, "me", try.change)
		if got := pipeline.KindOf(err); got != try.want {
			t.Errorf("%s: got %v, want kind %s", name, err, try.want)
		}
	}
	// What stands already is no conflict: the answer to the first call may have been lost.
	_, err := f.store.ChangeSale(f.ctx(), "drop", "me", pipeline.SaleChange{Title: to("two"), IfVersion: 1})
	if err != nil {
		t.Error(err)
	}
	if after := f.state(); after != before {
		t.Errorf("something was written:\n%s\nbefore:\n%s", after, before)
	}
	f.change("over", pipeline.SaleChange{Note: to("why it was closed")})
	if sale := f.stored("over"); sale.Note == "" || sale.Version != 3 {
		t.Errorf("the note of a closed sale: got %+v", sale)
	}
}

// A price is asked of orders from five seconds later on. What an order costs follows from its id alone, however late it
// is persisted; Postgres, its events and the programs agree, and a payment is compared with it.
func TestAnOrderKeepsItsPrice(t *testing.T) {
	f := setup(t)
	f.endpoint()
	f.sale("drop", 100)
	began := time.Now().UnixMilli()
	f.change("drop", pipeline.SaleChange{UnitPrice: to(int64(500)), Currency: to("EUR")})
	f.change("drop", pipeline.SaleChange{UnitPrice: to(int64(700))})
	f.change("drop", pipeline.SaleChange{UnitPrice: to(int64(300)), Currency: to("CHF")})
	sale := f.stored("drop")
	if len(sale.EarlierPrices) != 3 {
		t.Fatalf("got earlier prices %+v, want three", sale.EarlierPrices)
	}
	first, second, third := sale.EarlierPrices[0].UntilMS, sale.EarlierPrices[1].UntilMS, sale.EarlierPrices[2].UntilMS
	if lead := sales.PriceLead.Milliseconds(); first < began+lead || second <= first || third <= second {
		t.Fatalf("got earlier prices %+v, of changes from %d on", sale.EarlierPrices, began)
	}
	for i, order := range []struct {
		asked, amount int64
		currency      string
	}{
		{began, 0, ""},
		{first - 1, 0, ""},
		{first, 1000, "EUR"},
		{second - 1, 1000, "EUR"},
		{second, 1400, "EUR"},
		{third - 1, 1400, "EUR"},
		{third, 600, "CHF"},
		{third + 1e9, 600, "CHF"},
	} {
		e := event("drop", fmt.Sprint("buyer-", i), 2, int64(i+1))
		e.OrderID = askedAt(order.asked)
		f.persist(e)
		amount, currency := sale.PriceOf(e.OrderID, e.Quantity)
		row := one[string](f, `
			select coalesce(p.unit_price * 2, 0) || ' ' || coalesce(p.currency, '')
			from sales s, lateral order_price(s, $1::text::uuid) p where s.id = 'drop'`, e.OrderID)
		event := one[string](f, `
			select coalesce(data ->> 'amount', '0') || ' ' || coalesce(data ->> 'currency', '')
			from outbox where order_id = $1::text::uuid`, e.OrderID)
		page, err := f.store.Orders(f.ctx(), lifecycle.OrderFilter{OrderID: e.OrderID, Limit: 1})
		if err != nil || len(page.Orders) != 1 {
			t.Fatalf("got %d orders in the list, %v, want one", len(page.Orders), err)
		}
		listed := fmt.Sprint(page.Orders[0].UnitPrice*2, " ", page.Orders[0].Currency)
		want := fmt.Sprint(order.amount, " ", order.currency)
		if got := fmt.Sprint(amount, " ", currency); got != want || row != want || event != want || listed != want {
			t.Errorf("asked at %d: got %q, in Postgres %q, in its event %q, in the list %q, want %q", order.asked, got, row,
				event, listed, want)
		}
		if order.amount == 0 {
			continue
		}
		p := payment(e, i)
		p.Amount, p.Currency = order.amount+1, order.currency
		f.wantPayment(f.pay(p, sale, unknown), payments.Refused, payments.ReasonAmountMismatch,
			pipeline.StatusAwaitingPayment)
		p = payment(e, 100+i)
		p.Amount, p.Currency = order.amount, order.currency
		f.wantPayment(f.pay(p, sale, unknown), payments.Paid, "", pipeline.StatusPaid)
	}
	if amount, _ := sale.PriceOf("", 1); amount != 0 {
		t.Errorf("an order of this moment costs %d, want the first price still", amount)
	}
	sale.PricedUntil = time.UnixMilli(third + 5) // the process has not heard from Postgres
	known, _ := sale.PriceOf(askedAt(third+4), 1)
	if unknown, _ := sale.PriceOf(askedAt(third+5), 1); known != 300 || unknown != 0 {
		t.Errorf("known %d, and unknown %d: want 300 and nothing", known, unknown)
	}
}

// An accept of more units than the sale allows by now was one that it allowed. More than it ever allowed is none.
func TestALoweredLimitTakesNoOrderAway(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100) // 10 units each
	f.change("drop", pipeline.SaleChange{MaxQuantity: to(2)})
	f.change("drop", pipeline.SaleChange{MaxQuantity: to(1)})
	got := f.persist(event("drop", "ann", 10, 1), event("drop", "bob", 11, 2))
	if got[0] != pipeline.PersistInserted || got[1] != pipeline.PersistOverLimit {
		t.Errorf("got %v, want the order of ten, and not that of eleven", got)
	}
}
