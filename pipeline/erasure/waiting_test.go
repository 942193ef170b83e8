package erasure_test

import (
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/erasure"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/retention"
)

// finished reports whether an erasure is, and fails the test unless that is so where nothing names the buyer.
func finished(r *pipelinetest.Rig, id int64) bool {
	r.Helper()
	done := !stored(r, id).FinishedAt.IsZero()
	if got := traces(r, ann); done != (len(got) == 0) {
		r.Fatalf("finished: %v, and the buyer is named in %q", done, got)
	}
	return done
}

// An order that is accepted and has no row yet is waited for: it would name the buyer later.
func TestAnOrderOnItsWay(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{PaymentWindow: time.Hour}})
	order := r.Admit(ann, 1)
	asked := request(r, ann)
	run(r)
	if got := stored(r, asked.ID); !got.FinishedAt.IsZero() || got.WaitsFor != 1 {
		t.Errorf("while the order is in the stream: got %+v", got)
	}
	r.Persist(r.Events(r.Sale)...)
	run(r)
	if finished(r, asked.ID) {
		t.Error("finished while Redis has the sale")
	}
	r.End(order.OrderID)
	must(r, r.Releaser().Apply(r.Ctx()))
	retire(r, r.Sale.ID)
	run(r)
	if !finished(r, asked.ID) {
		t.Error("not finished")
	}
}

// A sale that is to be sold again while its buyer is being erased is waited for as well.
func TestASaleThatComesBack(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	r.Admit(ann, 1)
	r.Persist(r.Events(r.Sale)...)
	retire(r, r.Sale.ID)
	asked := request(r, ann)
	tx, err := r.SQL.Begin(r.Ctx())
	must(r, err)
	defer func() { _ = tx.Rollback(r.Ctx()) }() // it was committed
	_, err = tx.Exec(r.Ctx(), `update sales set retired_at = null, cleared_in = null where id = $1`, r.Sale.ID)
	must(r, err)
	erased := make(chan error, 1)
	go func() { erased <- erasure.NewEraser(r.Redis, r.Keys, r.Store, r.Logger).Job().Run(r.Ctx()) }()
	testkit.Eventually(t, time.Minute, "the erasure that waits for the sale", func() bool {
		var waiting bool
		err := r.SQL.QueryRow(r.Ctx(), `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waiting)
		return err == nil && waiting
	})
	must(r, tx.Commit(r.Ctx()))
	must(r, <-erased)
	if finished(r, asked.ID) {
		t.Error("finished although the sale came back")
	}
	retire(r, r.Sale.ID)
	run(r)
	if !finished(r, asked.ID) {
		t.Error("not finished once the sale has left again")
	}
}

// Events outlive the orders that were dropped.
func TestABuyerWhoseOrdersWereDropped(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	_, err := r.Store.EndpointRegistry().AddEndpoint(r.Ctx(), "test", "https://example.com/x", sealed, nil)
	must(r, err)
	r.Admit(ann, 1)
	r.Admit("bob", 1)
	r.Persist(r.Events(r.Sale)...)
	retire(r, r.Sale.ID)
	r.Exec(1, `update sales set retired_at = now() - interval '365 days' where id = $1`, r.Sale.ID)
	begun, err := r.Store.BeginDrop(r.Ctx(), r.Sale.ID, retention.Least)
	if must(r, err); !begun {
		t.Fatal("the orders are kept")
	}
	_, err = r.Store.DropBatch(r.Ctx(), r.Sale.ID, 10, nil)
	must(r, err)
	bobs := len(traces(r, "bob"))
	asked := request(r, ann)
	run(r)
	if !finished(r, asked.ID) || stored(r, asked.ID).Rows != 1 {
		t.Errorf("got %+v, want the event changed", stored(r, asked.ID))
	}
	if got := len(traces(r, "bob")); got != bobs || bobs == 0 {
		t.Errorf("bob's traces: got %d, want %d", got, bobs)
	}
}
