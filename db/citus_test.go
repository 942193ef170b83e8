package db_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/db/distribution"
	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
)

func setupCitus(t *testing.T) (*fixture, *localservers.Citus) {
	t.Helper()
	t.Parallel()
	c := testkit.PrivateCitus(t)
	return open(t, c.URL(), patient), c
}

// A second run of the distribution finds nothing to do, and what belongs to a sale is on one node.
func TestCitusHasASaleOnOneNode(t *testing.T) {
	f, c := setupCitus(t)
	again, err := distribution.Apply(f.ctx(), c.URL())
	if err != nil || again.Distributed != 0 || again.Everywhere != 0 {
		t.Errorf("again: %+v, %v, want nothing done", again, err)
	}
	apart := one[int](f, `
		select count(*) from citus_tables t where citus_table_type = 'distributed'
		and colocation_id <> (select colocation_id from citus_tables where table_name = 'sales'::regclass)`)
	together := one[int](f, `select count(*) from citus_tables where citus_table_type = 'distributed'`)
	if apart != 0 || together != 15 {
		t.Errorf("%d tables are distributed, %d of them apart from the sales; want 15 and none", together, apart)
	}
	for i := range 20 {
		f.sale(fmt.Sprint("drop-", i), 10)
	}
	nodes := one[int](f, `
		select count(distinct c.nodename) from citus_shards c join (
			select get_shard_id_for_distribution_column('sales', 'drop-' || i) as shardid from generate_series(0, 19) i
		) s using (shardid)`)
	if nodes != len(c.Workers()) {
		t.Errorf("20 sales are on %d nodes, want %d", nodes, len(c.Workers()))
	}
}

// The life of orders on a distributed Postgres, statement by statement: of two sales at once, because a statement that
// names no sale concerns several nodes. The events of each sale come in their order.
func TestCitusStoresTheLifeOfOrders(t *testing.T) {
	f, _ := setupCitus(t)
	f.endpoint()
	for _, sale := range []string{"lamp", "vase"} {
		f.sale(sale, 4)
	}
	buyers := map[string]pipeline.Event{}
	var batch []pipeline.Event
	for i, buyer := range []string{"payer", "canceller", "late", "returner"} {
		for _, sale := range []string{"lamp", "vase"} {
			e := event(sale, buyer, 1, int64(i+1))
			buyers[sale+"/"+buyer] = e
			batch = append(batch, e)
		}
	}
	f.persist(batch...)
	outcomes, err := f.store.PersistOrders(f.ctx(), 1, batch)
	for i := range outcomes {
		if outcomes[i] != pipeline.PersistRedelivered {
			t.Errorf("again: outcome %d is %q, want redelivered", i, outcomes[i])
		}
	}
	ok(t, err)
	for _, sale := range []string{"lamp", "vase"} {
		stored, err := f.store.Sale(f.ctx(), sale)
		ok(t, err)
		pay := func(buyer string) payments.Payment {
			e := buyers[sale+"/"+buyer]
			record, err := f.store.RecordPayment(f.ctx(), payments.Payment{
				WebhookID: "msg_" + e.OrderID, PaymentID: "pay_" + e.OrderID, SaleID: sale, OrderID: e.OrderID,
				Actor: payments.WebhookActor,
			}, stored, payments.Decision{})
			if err != nil || record.Payment.Outcome != payments.Paid {
				t.Fatalf("pay: %+v, %v", record, err)
			}
			return record.Payment
		}
		pay("payer")
		returned := pay("returner")
		_, changed, err := f.store.CancelOrder(f.ctx(), sale, buyers[sale+"/canceller"].OrderID, "canceller")
		if err != nil || !changed {
			t.Errorf("cancel: %t, %v", changed, err)
		}
		_, changed, err = f.store.ReturnOrder(f.ctx(), lifecycle.Return{
			SaleID: sale, OrderID: buyers[sale+"/returner"].OrderID, Actor: "ann", Reason: "broken", Restock: true,
		})
		if err != nil || !changed {
			t.Errorf("return: %t, %v", changed, err)
		}
		refund, err := f.store.RecordRefund(f.ctx(), payments.Refund{
			RefundID: "re_" + sale, Payment: returned.ID, PaymentID: returned.PaymentID, Actor: "ann",
		})
		if err != nil || refund.Refund.Outcome != payments.Refunded {
			t.Errorf("refund: %+v, %v", refund, err)
		}
		f.exec(`update orders set pay_by = now() - interval '1 minute' where sale_id = $1 and user_id = 'late'`, sale)
		poison := event(sale, "poison", 1, 5)
		ok(t, f.store.BuryEvent(f.ctx(), deadletter.Message{
			Partition: 3, EntryID: "9-" + fmt.Sprint(len(sale)), SaleID: sale, Reason: "refused", Error: "e",
		}, &poison))
	}
	expired, err := f.store.ExpireOrders(f.ctx(), 100)
	if err != nil || len(expired) != 2 {
		t.Fatalf("expired: %d, %v, want one of each sale", len(expired), err)
	}
	const wanted = "cancelled,expired,paid,refunded,rejected"
	for _, sale := range []string{"lamp", "vase"} {
		got := one[string](f, `
			select string_agg(status, ',' order by status) || ' ' || (select sold from sales where id = $1) from orders
			where sale_id = $1`, sale)
		if got != wanted+" 1" {
			t.Errorf("%s: got %s, want %s, and one unit sold", sale, got, wanted)
		}
	}
	releases, err := f.store.UnappliedReleases(f.ctx(), pipeline.SalePartition{}, 100)
	if err != nil || len(releases) != 8 {
		t.Fatalf("%d releases, %v, want those of four orders of each sale", len(releases), err)
	}
	ok(t, f.store.MarkReleasesApplied(f.ctx(), releases))
	f.wantEventsInOrder()
}

// wantEventsInOrder gives all events their positions, and compares the order of those of each order with its versions.
func (f *fixture) wantEventsInOrder() {
	f.Helper()
	for {
		n, err := f.store.SequenceEvents(f.ctx(), 7)
		ok(f.T, err)
		if n == 0 {
			break
		}
	}
	events, err := f.store.NextEvents(f.ctx(), 0, nil, 1000)
	ok(f.T, err)
	types := map[string][]string{}
	for i, e := range events {
		if e.Position != int64(i+1) {
			f.Errorf("event %d has position %d", i, e.Position)
		}
		types[e.OrderID] = append(types[e.OrderID], strings.TrimPrefix(e.Type, "order."))
	}
	if len(types) != 11 { // five orders of each sale, and the sales
		f.Errorf("events of %d orders, want 10, and those of the sales", len(types)-1)
	}
	for order, of := range types {
		if order != "" && of[0] != "awaiting_payment" && of[0] != "rejected" {
			f.Errorf("the events of %s begin with %v", order, of)
		}
	}
}

// A node is killed while batches are stored, and comes back: what was answered is there, what was not is stored by
// repeating it, and the counters are those of the rows.
func TestCitusLosesANodeMidway(t *testing.T) {
	f, c := setupCitus(t)
	const perSale, sales = 200, 4
	var all []pipeline.Event
	for i := range sales {
		sale := fmt.Sprint("drop-", i)
		f.sale(sale, perSale)
		all = append(all, events(sale, perSale)...)
	}
	node := c.Workers()[1]
	done := make(chan error, 1)
	go func() { done <- f.persistStubbornly(all) }()
	testkit.Eventually(t, time.Minute, "the first rows", func() bool {
		var n int
		err := f.raw.QueryRow(f.ctx(), `select count(*) from orders`).Scan(&n)
		return err == nil && n > 0
	})
	ok(t, node.Kill())
	time.Sleep(500 * time.Millisecond) // batches fail meanwhile
	ok(t, node.Restart(f.ctx()))
	ok(t, <-done)
	for i := range sales {
		got := one[string](f, `
			select count(*) || ' ' || (select sold from sales where id = $1) || ' ' ||
				(select stored from watermarks where sale_id = $1) from orders where sale_id = $1`, fmt.Sprint("drop-", i))
		if want := fmt.Sprintf("%d %d %d", perSale, perSale, perSale); got != want {
			t.Errorf("drop-%d: rows, sold and stored are %s, want %s", i, got, want)
		}
	}
}

// persistStubbornly stores events in small batches of all sales, each again until it is answered.
func (f *fixture) persistStubbornly(all []pipeline.Event) error {
	const size = 20
	for from := range size {
		var batch []pipeline.Event
		for i := from; i < len(all); i += size {
			batch = append(batch, all[i])
		}
		for {
			_, err := f.store.PersistOrders(f.ctx(), 1, batch)
			if err == nil {
				break
			}
			if pipeline.KindOf(err) != pipeline.KindUnavailable || f.ctx().Err() != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}
