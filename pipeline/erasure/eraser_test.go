package erasure_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/erasure"
	"sluice/pipeline/idempotency"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/sales"
)

func TestMain(m *testing.M) { pipelinetest.Main(m) }

const ann = "ann-4711@example.com"

// traces are the rows of all tables in which a text stands, whatever the column.
func traces(r *pipelinetest.Rig, text string) (found []string) {
	r.Helper()
	rows, err := r.SQL.Query(r.Ctx(), `select table_name from information_schema.tables
		where table_schema = current_schema() and table_type = 'BASE TABLE' order by 1`)
	if err != nil {
		r.Fatal(err)
	}
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			r.Fatal(err)
		}
		tables = append(tables, name)
	}
	if rows.Err() != nil || len(tables) < 20 {
		r.Fatalf("got tables %q, %v", tables, rows.Err())
	}
	for _, table := range tables {
		var n int
		err := r.SQL.QueryRow(r.Ctx(), `select count(*) from `+table+` t
			where strpos(t::text, $1) > 0 or strpos(t::text, $2) > 0`, text, hex.EncodeToString([]byte(text))).Scan(&n)
		if err != nil {
			r.Fatal(err)
		}
		if n > 0 {
			found = append(found, fmt.Sprintf("%s %d", table, n))
		}
	}
	return found
}

func run(r *pipelinetest.Rig) {
	r.Helper()
	if err := erasure.NewEraser(r.Redis, r.Keys, r.WorkerStore(), r.Logger).Job().Run(r.Ctx()); err != nil {
		r.Fatal(err)
	}
}

func request(r *pipelinetest.Rig, user string) erasure.Erasure {
	r.Helper()
	e, err := r.Store.RequestErasure(r.Ctx(), user, "cli:eve")
	if err != nil {
		r.Fatal(err)
	}
	return e
}

func stored(r *pipelinetest.Rig, id int64) erasure.Erasure {
	r.Helper()
	e, err := r.Store.Erasure(r.Ctx(), id)
	if err != nil {
		r.Fatal(err)
	}
	return e
}

func must(r *pipelinetest.Rig, err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// retire lets a sale leave Redis.
func retire(r *pipelinetest.Rig, saleID string) {
	r.Helper()
	r.Over(saleID)
	must(r, sales.NewRetirer(r.Redis, r.Keys, r.WorkerStore(), 24*time.Hour, r.Logger).Job().Run(r.Ctx()))
	if sale := r.Stored(saleID); sale.RetiredAt.IsZero() {
		r.Fatalf("sale %s is in Redis still", saleID)
	}
}

// spread lets a buyer leave something in every table that can have it, in a sale that is over and in one that is not.
// bob does what ann does.
func spread(r *pipelinetest.Rig) (over, open *pipeline.Sale) {
	r.Helper()
	_, err := r.Store.EndpointRegistry().AddEndpoint(r.Ctx(), "test", "https://example.com/x", sealed, nil)
	must(r, err)
	define := func(id string) *pipeline.Sale {
		return r.CreateSale(pipeline.Sale{
			ID: id, Total: 3, MaxQuantity: 1, Waitlist: 9, PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR",
			Partitions: []pipeline.Partition{1},
		})
	}
	over = define("over")
	r.Sale = over
	first, other, third := r.Admit(ann, 1), r.Admit("bob", 1), r.Admit("cat", 1)
	events := r.Events(over)
	r.Persist(events...)
	p := pipelinetest.PaymentFor(&first, 0)
	p.UserID = ann
	paid, err := r.Payments().Pay(r.Ctx(), p)
	if must(r, err); paid.Outcome != payments.Paid {
		r.Fatalf("%+v", paid)
	}
	p = pipelinetest.PaymentFor(&other, 0)
	p.UserID = ann // who pays for somebody else is refused, and on record
	_, err = r.Payments().Pay(r.Ctx(), p)
	must(r, err)
	returner := lifecycle.NewReturner(r.Store, r.Notifier(), r.Metrics.Lifecycle)
	_, err = returner.Return(r.Ctx(), lifecycle.Return{
		SaleID: over.ID, OrderID: first.OrderID, Restock: true, Actor: "eve", Reason: "as " + ann + " asked by phone",
	})
	must(r, err)
	for _, receipt := range []string{other.OrderID, third.OrderID} {
		r.End(receipt)
	}
	must(r, r.Releaser().Apply(r.Ctx()))
	r.Exec(1, `insert into waitlist (sale_id, order_id, user_id, number, quantity, partition, ticket, joined_at)
		values ('over', gen_random_uuid(), $1, 7, 1, 1, 1, now())`, ann)
	r.Exec(1, `update waitlist set left_at = now(), left_ticket = 2 where user_id = $1`, ann)
	letter := deadletter.Message{
		Partition: 2, EntryID: "1-1", SaleID: "nowhere", OrderID: "x", Reason: "unknown-sale", Deliveries: 1,
		Error: "no sale for " + ann, Payload: map[string]any{"u": ann, "q": "1"},
	}
	must(r, r.Store.BuryEvent(r.Ctx(), letter, nil))
	_, _, err = r.Store.BeginReplay(r.Ctx(), r.LastLetter(), first.OrderID,
		deadletter.ReplayAs{SaleID: "over", UserID: ann, Quantity: 1})
	must(r, err)
	refund := payments.Refund{
		RefundID: "re_1", PaymentID: p.PaymentID + "x", Note: "for " + ann, Actor: "eve",
	}
	_, err = r.Store.RecordRefund(r.Ctx(), refund)
	must(r, err)
	keyed := idempotency.NewRequest("key", "http", "POST", "/x", "")
	_, _, err = idempotency.New(r.Store, r.Logger).Once(r.Ctx(), keyed,
		func(context.Context) (idempotency.Answer, idempotency.Verdict, error) {
			return idempotency.Answer{Status: 200, Body: []byte(`{"user_id":"` + ann + `","quantity":1}`)}, idempotency.Final, nil
		})
	must(r, err)
	note := "for " + ann
	_, err = r.Store.ChangeSale(r.Ctx(), over.ID, "eve", pipeline.SaleChange{Note: &note})
	must(r, err)

	open = define("open")
	r.Sale = open
	late := r.Admit(ann, 1)
	r.Persist(r.Events(open)...)
	r.End(late.OrderID)
	r.Sale = over
	return over, open
}

// A buyer's id stands nowhere once Redis has left it: in no column of any table. It is one pseudonym everywhere, no
// other buyer's rows change, and the sales' books are as right as before.
func TestNothingIsLeftOfAnErasedBuyer(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	over, open := spread(r)
	retire(r, over.ID)
	books := func(saleID string) any {
		report, err := r.Auditor.Audit(r.Ctx(), r.Stored(saleID))
		if must(r, err); !report.Clean() {
			t.Fatalf("%s: %q", saleID, report.Findings)
		}
		report.Letters = 0
		return *report
	}
	before, bobs := books(over.ID), len(traces(r, "bob"))
	if got := traces(r, ann); len(got) < 10 {
		t.Fatalf("the buyer has left traces in %q only", got)
	}

	asked := request(r, ann)
	if asked.WaitsFor != 1 || !strings.HasPrefix(asked.Pseudonym, "erased-") || strings.Contains(asked.Pseudonym, ann) {
		t.Fatalf("asked: got %+v", asked)
	}
	if again := request(r, ann); again.ID != asked.ID {
		t.Errorf("asked again: got %+v", again)
	}
	run(r)
	if got := stored(r, asked.ID); got.WaitsFor != 1 || !got.FinishedAt.IsZero() || got.Rows == 0 {
		t.Errorf("while a sale is in Redis: got %+v", got)
	}
	for _, table := range []string{"orders", "waitlist", "releases", "outbox", "payments"} {
		var n int
		must(r, r.SQL.QueryRow(r.Ctx(), `select count(*) from `+table+` t where sale_id = 'over' and strpos(t::text, $1) > 0
			and t::text not like '%foreign-order%'`, ann).Scan(&n))
		if n > 0 {
			t.Errorf("%d rows of %s name the buyer in a sale that has left Redis", n, table)
		}
	}
	var live int
	must(r, r.SQL.QueryRow(r.Ctx(), `select count(*) from orders where sale_id = 'open' and user_id = $1`, ann).Scan(&live))
	if live != 1 {
		t.Errorf("the order in the sale that Redis has: got %d, want it as it was", live)
	}
	if got := books(over.ID); !reflect.DeepEqual(got, before) {
		t.Errorf("books: got\n%+v, want\n%+v", got, before)
	}

	must(r, r.Releaser().Apply(r.Ctx()))
	retire(r, open.ID)
	for range 2 {
		run(r)
		if got := traces(r, ann); len(got) > 0 {
			t.Fatalf("the buyer is named in %q", got)
		}
	}
	if got := stored(r, asked.ID); got.FinishedAt.IsZero() || got.WaitsFor != 0 {
		t.Errorf("got %+v", got)
	}
	if got := books(over.ID); !reflect.DeepEqual(got, before) {
		t.Errorf("books: got\n%+v, want\n%+v", got, before)
	}
	books(open.ID)
	if got := len(traces(r, "bob")); got != bobs {
		t.Errorf("bob's traces: got %d, want %d", got, bobs)
	}
	page, err := r.Store.Orders(r.Ctx(), lifecycle.OrderFilter{UserID: asked.Pseudonym, Limit: 10})
	if err != nil || len(page.Orders) != 2 {
		t.Errorf("by the pseudonym: got %d orders, %v, want 2", len(page.Orders), err)
	}
	if next := request(r, ann); next.ID == asked.ID || next.Pseudonym == asked.Pseudonym {
		t.Errorf("a later erasure: got %+v, want another pseudonym", next)
	}
}

// A payment for an erased buyer's order counts as before, and does not bring the name back.
func TestALatePaymentForAnErasedBuyer(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{
		Sale: pipeline.Sale{PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR"},
	})
	order := r.Admit(ann, 1)
	r.Persist(r.Events(r.Sale)...)
	r.End(order.OrderID)
	must(r, r.Releaser().Apply(r.Ctx()))
	retire(r, r.Sale.ID)
	request(r, ann)
	run(r)
	p := pipelinetest.PaymentFor(&order, 0)
	p.UserID = ann
	if got, err := r.Payments().Pay(r.Ctx(), p); err != nil || got.Outcome != payments.RefundDue {
		t.Errorf("got %+v, %v, want it to be paid back", got, err)
	}
	if got := traces(r, ann); len(got) > 0 {
		t.Errorf("the buyer is named in %q", got)
	}
}

// sealed is what is stored as a secret, here.
func sealed(int64) string { return "whsec_x" }
