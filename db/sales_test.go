package db_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"sluice/pipeline"
)

func TestCreateSale(t *testing.T) {
	f := setup(t)
	began := time.Now().Add(-time.Second)
	sale := newSale("drop-1", 1000)
	sale.Title = `O'Brien's "Schlüssel" 🔑 \ %s`
	sale.Partitions = []pipeline.Partition{0, 7, 63}
	sale.EntryTicket, sale.EntrySpread = true, 30*time.Second
	sale.Sold, sale.Version = 7, 9 // the store's to decide
	want := *sale
	sale.CreatedBy = "Zoë"
	if err := f.store.CreateSale(f.ctx(), sale); err != nil {
		t.Fatal(err)
	}
	if sale.CreatedAt.Before(began) || !sale.UpdatedAt.Equal(sale.CreatedAt) {
		t.Errorf("created %s, updated %s, want now and the same", sale.CreatedAt, sale.UpdatedAt)
	}
	want.Sold, want.Version, want.State = 0, 1, pipeline.SaleActive
	want.CreatedAt, want.UpdatedAt = sale.CreatedAt, sale.UpdatedAt
	if !reflect.DeepEqual(*sale, want) {
		t.Errorf("created: got %+v, want %+v", *sale, want)
	}
	stored, err := f.store.Sale(f.ctx(), "drop-1")
	if err != nil || !reflect.DeepEqual(*stored, want) {
		t.Errorf("stored: got %+v, %v, want %+v", stored, err, want)
	}
	logged := one[string](f,
		`select actor || ' ' || action || ' ' || sale_id || ' ' || (detail ->> 'total') || ' ' || (detail ->> 'partitions') from audit_log`)
	if logged != "Zoë create drop-1 1000 3" {
		t.Errorf("audit log: got %q, want the creation", logged)
	}

	before := f.state()
	again := newSale("drop-1", 5)
	wantKind(t, f.store.CreateSale(f.ctx(), again), pipeline.KindConflict)
	if again.Version != 0 || f.state() != before {
		t.Error("a refused sale changed something")
	}
}

func TestCreateSaleRefuses(t *testing.T) {
	f := setup(t)
	before := f.state()
	for name, spoil := range map[string]func(*pipeline.Sale){
		"id":                   func(s *pipeline.Sale) { s.ID = "Drop 1" },
		"title with NUL":       func(s *pipeline.Sale) { s.Title = "a\x00b" },
		"total":                func(s *pipeline.Sale) { s.Total = 0 },
		"window":               func(s *pipeline.Sale) { s.ClosesAt = s.OpensAt },
		"state":                func(s *pipeline.Sale) { s.State = "dormant" },
		"no partition":         func(s *pipeline.Sale) { s.Partitions = nil },
		"partition too big":    func(s *pipeline.Sale) { s.Partitions = []pipeline.Partition{64} },
		"partition negative":   func(s *pipeline.Sale) { s.Partitions = []pipeline.Partition{-1} },
		"too many partitions":  func(s *pipeline.Sale) { s.Partitions = make([]pipeline.Partition, 65) },
		"payment window":       func(s *pipeline.Sale) { s.PaymentWindow = -1 },
		"payment window bound": func(s *pipeline.Sale) { s.PaymentWindow = pipeline.MaxPaymentWindow + 1 },
	} {
		sale := newSale("drop-1", 10)
		spoil(sale)
		if err := f.store.CreateSale(f.ctx(), sale); pipeline.KindOf(err) != pipeline.KindInvalid {
			t.Errorf("%s: got %v, want a KindInvalid error", name, err)
		}
	}
	if f.state() != before {
		t.Error("a refused sale was written")
	}
}

// The database's limits are the pipeline's: the largest sale and order fit, and one step more is refused by name.
func TestLimitsEqualThePipelines(t *testing.T) {
	f := setup(t)
	const titleLimit = 200
	long := newSale("drop-1", 1)
	long.Title = strings.Repeat("t", titleLimit+1)
	for _, spread := range []time.Duration{-time.Second, 10*time.Minute + time.Second, time.Millisecond} {
		slow := newSale("drop-1", 1)
		slow.EntrySpread = spread
		if slow.Validate() == nil {
			t.Errorf("an entry spread of %s is valid", spread)
		}
	}
	if long.Validate() == nil {
		t.Errorf("a title of %d bytes is valid", len(long.Title))
	}
	largest := newSale(strings.Repeat("a", 64), pipeline.MaxStock)
	largest.Title = strings.Repeat("t", titleLimit)
	largest.MaxQuantity = pipeline.MaxQuantityLimit
	largest.PaymentWindow = pipeline.MaxPaymentWindow
	largest.EntryTicket, largest.EntrySpread = true, 10*time.Minute
	largest.Partitions = nil
	for p := range pipeline.MaxPartitions {
		largest.Partitions = append(largest.Partitions, pipeline.Partition(p))
	}
	if err := f.store.CreateSale(f.ctx(), largest); err != nil {
		t.Fatalf("the largest sale: %v", err)
	}
	order := event(largest.ID, strings.Repeat("u", pipeline.MaxUserIDBytes), pipeline.MaxQuantityLimit, 1)
	order.Partition = pipeline.MaxPartitions - 1
	if got := f.persist(order)[0]; got != pipeline.PersistInserted {
		t.Fatalf("the largest order: got %s", got)
	}
	f.exec(`insert into installation (partitions) values ($1)`, pipeline.MaxPartitions)

	tooLong := pipeline.MaxPaymentWindow.Seconds() + 1
	f.exec(`alter table orders disable trigger user`) // it refuses most of what follows
	for constraint, change := range map[string]string{
		"sales_id_form":                fmt.Sprintf(`update sales set id = repeat('a', %d)`, 65),
		"sales_title_bounds":           fmt.Sprintf(`update sales set title = repeat('t', %d)`, titleLimit+1),
		"sales_total_bounds":           fmt.Sprintf(`update sales set total = %d`, pipeline.MaxStock+1),
		"sales_max_quantity_bounds":    fmt.Sprintf(`update sales set max_quantity = %d`, pipeline.MaxQuantityLimit+1),
		"sales_payment_window_bounds":  fmt.Sprintf(`update sales set payment_window = interval '%f s'`, tooLong),
		"sales_partitions_bounds":      fmt.Sprintf(`update sales set partitions = array[%d]`, pipeline.MaxPartitions),
		"sales_state_known":            `update sales set state = 'open'`,
		"sales_window_order":           `update sales set closes_at = opens_at`,
		"sales_sold_within_total":      `update sales set sold = total + 1`,
		"sales_entry_spread_bounds":    `update sales set entry_spread = interval '601 s'`,
		"sales_withdrawn_bounds":       `update sales set withdrawn = -1`,
		"sales_withdrawn_within_total": `update sales set withdrawn = total - sold + 1`,
		"sales_version_positive":       `update sales set version = 0`,
		"orders_user_id_bounds": fmt.Sprintf(`update orders set user_id = repeat('u', %d)`,
			pipeline.MaxUserIDBytes+1),
		"orders_quantity_bounds":         fmt.Sprintf(`update orders set quantity = %d`, pipeline.MaxQuantityLimit+1),
		"orders_partition_bounds":        fmt.Sprintf(`update orders set partition = %d`, pipeline.MaxPartitions),
		"orders_sequence_positive":       `update orders set sequence = 0`,
		"orders_number_positive":         `update orders set number = 0`,
		"orders_status_known":            `update orders set status = 'queued', closed_at = now()`,
		"orders_pay_by_set":              `update orders set pay_by = null`,
		"orders_reason_set":              `update orders set status = 'rejected', closed_at = now()`,
		"orders_closed_at_set":           `update orders set status = 'cancelled'`,
		"orders_paid_set":                `update orders set status = 'paid'`,
		"watermarks_partition_bounds":    fmt.Sprintf(`update watermarks set partition = %d`, pipeline.MaxPartitions),
		"installation_partitions_bounds": fmt.Sprintf(`update installation set partitions = %d`, pipeline.MaxPartitions+1),
		"installation_single_true":       `update installation set single = false`,
	} {
		_, err := f.raw.Exec(f.ctx(), change)
		if err == nil || !strings.Contains(err.Error(), `"`+constraint+`"`) {
			t.Errorf("%s: got %v, want %s to be violated", change, err, constraint)
		}
	}
	for _, status := range []pipeline.OrderStatus{
		pipeline.StatusAwaitingPayment, pipeline.StatusConfirmed, pipeline.StatusPaid, pipeline.StatusCancelled,
		pipeline.StatusExpired, pipeline.StatusRejected, pipeline.StatusRefundDue,
	} {
		closed := "now()"
		if status.Live() {
			closed = "null"
		}
		f.exec(`update orders set status = $1, reason = 'r', paid_at = now(), payment_id = 'p', closed_at = `+closed, status)
	}
}

func TestUnknownSale(t *testing.T) {
	f := setup(t)
	for _, id := range []string{"none", "", "a b", "x\x00y", "\xff"} {
		_, err := f.store.Sale(f.ctx(), id)
		wantKind(t, err, pipeline.KindNotFound)
		_, err = f.store.ChangeSale(f.ctx(), id, "me", pipeline.SaleChange{AddStock: 1})
		wantKind(t, err, pipeline.KindNotFound)
	}
	wantKind(t, f.store.MarkLoaded(f.ctx(), "none"), pipeline.KindNotFound)
}

func TestSales(t *testing.T) {
	f := setup(t)
	for _, id := range []string{"b", "a-1", "a", "c"} {
		f.sale(id, 1)
	}
	f.exec(`update sales set updated_at = '2026-01-01' where id in ('a', 'c')`)
	since := time.Date(2026, 1, 1, 0, 0, 0, 1000, time.UTC)
	for _, try := range []struct {
		filter pipeline.SalesFilter
		want   string
	}{
		{pipeline.SalesFilter{}, "a a-1 b c"},
		{pipeline.SalesFilter{Limit: 2}, "a a-1"},
		{pipeline.SalesFilter{Limit: 2, After: "a-1"}, "b c"},
		{pipeline.SalesFilter{After: "c"}, ""},
		{pipeline.SalesFilter{UpdatedSince: since}, "a-1 b"},
		{pipeline.SalesFilter{UpdatedSince: since.Add(-time.Microsecond), Limit: 1 << 40}, "a a-1 b c"},
	} {
		sales, err := f.store.Sales(f.ctx(), try.filter)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, sale := range sales {
			ids = append(ids, sale.ID)
		}
		if got := strings.Join(ids, " "); got != try.want {
			t.Errorf("%+v: got %q, want %q", try.filter, got, try.want)
		}
	}
}

func TestMarkLoaded(t *testing.T) {
	f := setup(t)
	f.sale("drop", 1)
	if err := f.store.MarkLoaded(f.ctx(), "drop"); err != nil {
		t.Fatal(err)
	}
	sale, err := f.store.Sale(f.ctx(), "drop")
	if err != nil || sale.LoadedAt.IsZero() || sale.Version != 1 {
		t.Fatalf("got %+v, %v, want a time of loading and version 1", sale, err)
	}
	before := f.state()
	if err := f.store.MarkLoaded(f.ctx(), "drop"); err != nil {
		t.Fatal(err)
	}
	if after := f.state(); after != before {
		t.Errorf("the second call changed something:\n%s\nbefore:\n%s", after, before)
	}
}

func TestEnsurePartitions(t *testing.T) {
	f := setup(t)
	for _, n := range []int{16, 8, 64, 16} {
		if got, err := f.store.EnsurePartitions(f.ctx(), n); got != 16 || err != nil {
			t.Errorf("EnsurePartitions(%d): got %d, %v, want the first one, 16", n, got, err)
		}
	}
	for _, n := range []int{0, -1, 65} {
		_, err := f.store.EnsurePartitions(f.ctx(), n)
		wantKind(t, err, pipeline.KindInvalid)
	}
}
