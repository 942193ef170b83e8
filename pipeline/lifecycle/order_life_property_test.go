package lifecycle_test

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/waitlist"
)

// TestLifeAgainstModel plays random lives of orders in Go, Lua and SQL at once: accepts, persists, cancellations,
// expiries, payments, releases, restocks and people who wait, each of which may also die half-way and be done again. A
// model says what each step must answer; both stores are compared with it after every step, and in the end every unit
// is paid for, waited for, or back in stock.
func TestLifeAgainstModel(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Partitions: 1, NoSale: true})
	var sales atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		l := newLife(r, rt, fmt.Sprintf("life-%d", sales.Add(1)))
		rt.Repeat(l.actions())
		l.finish()
	})
}

// lifeWaitlist is how many people may wait.
const lifeWaitlist = 3

var lifeBuyers = []string{"ann", "bob", "cy", "dan", "eve", "fay"}

// life is one sale as it must be.
type life struct {
	*pipelinetest.Rig
	rt     *rapid.T
	sale   *pipeline.Sale
	total  int64                 // as Postgres defines it
	loaded int64                 // as Redis has it
	slots  map[string]*lifeOrder // by buyer: the orders whose units Redis has taken
	orders []*lifeOrder          // in the order of their accepts
	line   []lifeEntry           // the waitlist, first come first
	served []string              // the orders made for those who waited, in turn
	joined []string              // the orders that people were promised, in turn, without those who left

	waitlist *waitlist.Service
	payments *payments.Service
	payCount int // payments sent so far
}

type lifeOrder struct {
	id, user string
	quantity int64
	event    pipeline.Event
	stored   bool // Postgres has it
	settled  bool // the stream has it no longer
	status   pipeline.OrderStatus
	released bool // Redis has its units back
	recorded bool // and Postgres knows
}

// lifeEntry is a buyer's entry in the waitlist.
type lifeEntry struct {
	id, user string
	quantity int64
}

func (o *lifeOrder) live() bool { return o.status.Live() }

func newLife(r *pipelinetest.Rig, rt *rapid.T, id string) *life {
	total := rapid.Int64Range(1, 8).Draw(rt, "total")
	window := rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(rt, "payment window")
	l := &life{Rig: r, rt: rt, total: total, loaded: total, slots: map[string]*lifeOrder{}}
	l.sale = r.CreateSale(pipeline.Sale{
		ID: id, Total: total, MaxQuantity: 3, PaymentWindow: window, Waitlist: lifeWaitlist,
		Partitions: []pipeline.Partition{0},
	})
	l.waitlist = waitlist.NewService(
		r.Redis, r.Keys, r.Store, lifecycle.NewLookup(r.Redis, r.Keys, r.Store), r.HandOvers(), r.Metrics.Waitlist,
	)
	l.payments = r.PaymentsWith(r.Store)
	return l
}

func (l *life) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":        func(*rapid.T) { l.compare() },
		"admit":   l.admitOne,
		"persist": l.persistSome,
		"settle":  l.settleSome,
		"cancel":  l.cancelOne,
		"expire":  l.expireSome,
		"release": l.releaseSome,
		"restock": l.restock,
		"join":    l.joinOne,
		"leave":   l.leaveOne,
		"pay":     l.payOne,
		"publish": func(*rapid.T) { l.publish() },
	}
}

// stock is what Redis must have left.
func (l *life) stockLeft() int64 {
	left := l.loaded
	for _, o := range l.slots {
		left -= o.quantity
	}
	return left
}

func (l *life) admitOne(rt *rapid.T) {
	user, quantity := rapid.SampledFrom(lifeBuyers).Draw(rt, "buyer"), rapid.IntRange(1, 3).Draw(rt, "quantity")
	want := admission.Accepted
	if l.slots[user] != nil {
		want = admission.AlreadyOrdered
	} else if int64(quantity) > l.stockLeft() || len(l.line) > 0 { // nobody overtakes those who wait
		want = admission.SoldOut
	}
	decision, err := l.Admission.Admit(l.Ctx(), l.sale, pipeline.OrderRequest{UserID: user, Quantity: quantity})
	if err != nil || decision.Result != want {
		rt.Fatalf("order of %d by %s: got %s, %v, want %s", quantity, user, decision.Result, err, want)
	}
	if want != admission.Accepted {
		return
	}
	o := &lifeOrder{id: decision.Receipt.OrderID, user: user, quantity: int64(quantity), status: pipeline.StatusQueued}
	events := l.Events(l.sale)
	o.event = events[len(events)-1]
	l.slots[user], l.orders = o, append(l.orders, o)
}

func (l *life) joinOne(rt *rapid.T) {
	user, quantity := rapid.SampledFrom(lifeBuyers).Draw(rt, "buyer"), rapid.Int64Range(1, 3).Draw(rt, "quantity")
	at := slices.IndexFunc(l.line, func(p lifeEntry) bool { return p.user == user })
	want := waitlist.Joined
	switch {
	case l.slots[user] != nil:
		want = waitlist.AlreadyOrdered
	case at >= 0 && l.line[at].quantity != quantity:
		want = waitlist.AlreadyWaiting
	case at >= 0:
	case quantity > l.loaded:
		want = waitlist.OverLimit
	case len(l.line) == 0 && quantity <= l.stockLeft():
		want = waitlist.Available
	case len(l.line) == lifeWaitlist:
		want = waitlist.Full
	}
	decision, err := l.waitlist.Join(l.Ctx(), l.sale, pipeline.OrderRequest{UserID: user, Quantity: int(quantity)})
	if err != nil || decision.Result != want {
		rt.Fatalf("%s joins for %d: got %s, %v, want %s", user, quantity, decision.Result, err, want)
	}
	if want != waitlist.Joined {
		return
	}
	if at < 0 {
		at = len(l.line)
		l.line = append(l.line, lifeEntry{decision.Entry.OrderID, user, quantity})
		l.joined = append(l.joined, decision.Entry.OrderID)
	}
	if decision.Position != int64(at+1) || decision.Entry.OrderID != l.line[at].id {
		rt.Fatalf(
			"%s waits at %d for order %s, want %d and %s", user, decision.Position, decision.Entry.OrderID, at+1, l.line[at].id,
		)
	}
}

func (l *life) leaveOne(rt *rapid.T) {
	user := rapid.SampledFrom(lifeBuyers).Draw(rt, "buyer")
	at := slices.IndexFunc(l.line, func(p lifeEntry) bool { return p.user == user })
	left, err := l.waitlist.Leave(l.Ctx(), l.sale, user)
	if at < 0 {
		if err == nil && !left.Ordered && left.Entry.LeftAt.IsZero() {
			rt.Fatalf("%s left a list without having been in it: %+v", user, left)
		}
		return
	}
	if err != nil || left.Ordered {
		rt.Fatalf("%s leaves: %+v, %v", user, left, err)
	}
	id := l.line[at].id
	l.line = slices.Delete(l.line, at, at+1)
	l.joined = slices.DeleteFunc(l.joined, func(promised string) bool { return promised == id })
	l.serve()
}

// serve is what every script does that frees units: while there are enough units for the first in line, it gets them.
func (l *life) serve() {
	for len(l.line) > 0 && l.line[0].quantity <= l.stockLeft() {
		next := l.line[0]
		l.line = l.line[1:]
		o := &lifeOrder{id: next.id, user: next.user, quantity: next.quantity, status: pipeline.StatusQueued}
		l.slots[next.user], l.orders = o, append(l.orders, o)
		l.served = append(l.served, next.id)
	}
	for _, e := range l.Events(l.sale) {
		for _, o := range l.orders {
			if o.id == e.OrderID {
				o.event = e
			}
		}
	}
}

// payOne sends payments for orders: once, twice, or as another payment of the same order.
func (l *life) payOne(rt *rapid.T) {
	for _, o := range l.some(rt, "paid", func(o *lifeOrder) bool { return o.stored }) {
		l.payCount++
		payment := payments.Payment{
			WebhookID: fmt.Sprintf("msg-%s-%d", l.sale.ID, l.payCount),
			PaymentID: fmt.Sprintf("pay-%s-%d", l.sale.ID, l.payCount),
			SaleID:    l.sale.ID, OrderID: o.id, UserID: o.user, Amount: 100, Currency: "EUR", Actor: "provider",
		}
		want := payments.RefundDue
		if o.status == pipeline.StatusAwaitingPayment {
			want, o.status = payments.Paid, pipeline.StatusPaid
		} else if slices.Contains(pipeline.Transitions[o.status], pipeline.StatusRefundDue) {
			o.status = pipeline.StatusRefundDue
		}
		for range rapid.IntRange(1, 2).Draw(rt, "times sent") {
			got, err := l.payments.Pay(l.Ctx(), payment)
			if err != nil || got.Outcome != want {
				rt.Fatalf("payment of an order that is now %s: got %s, %v, want %s", o.status, got.Outcome, err, want)
			}
		}
	}
}

// some draws orders for which a condition holds; none when there are none.
func (l *life) some(rt *rapid.T, what string, holds func(*lifeOrder) bool) []*lifeOrder {
	var of []*lifeOrder
	for _, o := range l.orders {
		if holds(o) {
			of = append(of, o)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(of), 1, len(of), func(o *lifeOrder) string { return o.id }).
		Draw(rt, what)
}

// persistSome delivers events that are still in the stream, those that Postgres has already among them: a worker that
// died before it settled.
func (l *life) persistSome(rt *rapid.T) {
	batch := l.some(rt, "batch", func(o *lifeOrder) bool { return !o.settled })
	if len(batch) == 0 {
		return
	}
	var events []pipeline.Event
	for _, o := range batch {
		events = append(events, o.event)
	}
	outcomes, err := l.Store.PersistOrders(l.Ctx(), l.Generation(), events)
	if err != nil {
		rt.Fatalf("persist: %v", err)
	}
	for i, o := range batch {
		want := pipeline.PersistInserted
		if o.stored {
			want = pipeline.PersistRedelivered
		}
		if outcomes[i] != want {
			rt.Fatalf("persist %s of %s: got %s, want %s", o.id, o.user, outcomes[i], want)
		}
		if !o.stored {
			o.stored, o.status = true, pipeline.StatusConfirmed
			if l.sale.PaymentWindow > 0 {
				o.status = pipeline.StatusAwaitingPayment
			}
		}
	}
}

func (l *life) settleSome(rt *rapid.T) {
	for _, o := range l.some(rt, "settled", func(o *lifeOrder) bool { return o.stored && !o.settled }) {
		l.Forget(o.event)
		o.settled = true
	}
}

func (l *life) cancelOne(rt *rapid.T) {
	for _, o := range l.some(rt, "cancelled", func(o *lifeOrder) bool { return o.stored }) {
		can := slices.Contains(pipeline.Transitions[o.status], pipeline.StatusCancelled)
		order, changed, err := l.Store.CancelOrder(l.Ctx(), l.sale.ID, o.id, o.user)
		if err != nil || changed != can {
			rt.Fatalf("cancel an order that is %s: %t, %v", o.status, changed, err)
		}
		if can {
			o.status = pipeline.StatusCancelled
		}
		if order.Status != o.status {
			rt.Fatalf("cancel: the order is %s, want %s", order.Status, o.status)
		}
	}
}

func (l *life) stored() []*lifeOrder {
	return slices.DeleteFunc(slices.Clone(l.orders), func(o *lifeOrder) bool { return !o.stored })
}

// expireSome makes some orders overdue, and expires them.
func (l *life) expireSome(rt *rapid.T) {
	due := l.some(rt, "due", func(o *lifeOrder) bool { return o.status == pipeline.StatusAwaitingPayment })
	for _, o := range due {
		l.Exec(1, `update orders set pay_by = now() - interval '1 s' where id = $1`, o.id)
	}
	expired, err := l.Store.ExpireOrders(l.Ctx(), lifecycle.ExpireBatch)
	if err != nil || len(expired) != len(due) {
		rt.Fatalf("%d expired, %v, want %d", len(expired), err, len(due))
	}
	for _, o := range due {
		o.status = pipeline.StatusExpired
	}
}

// releaseSome gives back what is owed; it may die between Redis and Postgres, and is then repeated some time later.
func (l *life) releaseSome(rt *rapid.T) {
	dies := rapid.Bool().Draw(rt, "dies before it is recorded")
	due, err := l.Store.UnappliedReleases(l.Ctx(), pipeline.SalePartition{}, 100)
	if err != nil {
		rt.Fatal(err)
	}
	owed := map[string]bool{}
	for _, release := range due {
		owed[release.OrderID] = release.SaleID == l.sale.ID
	}
	for _, o := range l.orders {
		if want := o.stored && !o.live() && !o.recorded; owed[o.id] != want {
			rt.Fatalf("%s order of %s: owed %t, want %t", o.status, o.user, owed[o.id], want)
		}
		if !owed[o.id] {
			continue
		}
		o.released, o.recorded = true, !dies
		if l.slots[o.user] == o {
			delete(l.slots, o.user)
		}
	}
	defer l.serve()
	if dies {
		l.releaseInRedisOnly(due)
		return
	}
	if err := l.Releaser().Apply(l.Ctx()); err != nil {
		rt.Fatalf("release: %v", err)
	}
}

func (l *life) releaseInRedisOnly(due []pipeline.Release) {
	for _, release := range due {
		_, _, err := lua.Release(l.Ctx(), l.Redis, l.Keys.ForSale(0, release.SaleID), release.SaleID, 1000,
			[]lua.ReleaseItem{{UserID: release.UserID, OrderID: release.OrderID}})
		if err != nil {
			l.rt.Fatalf("release: %v", err)
		}
	}
}

// restock adds units; the change may die before it reaches Redis.
func (l *life) restock(rt *rapid.T) {
	units := rapid.Int64Range(1, 3).Draw(rt, "units")
	if _, err := l.Store.ChangeSale(l.Ctx(), l.sale.ID, "rapid", pipeline.SaleChange{AddStock: units}); err != nil {
		rt.Fatalf("restock: %v", err)
	}
	l.total += units
	if rapid.Bool().Draw(rt, "reaches Redis") {
		l.publish()
	}
}

func (l *life) publish() {
	if err := l.Publisher.Publish(l.Ctx(), l.Rig.Stored(l.sale.ID)); err != nil {
		l.rt.Fatalf("publish: %v", err)
	}
	l.loaded = l.total
	l.serve()
}

// lifeBooks is what both stores must have.
type lifeBooks struct {
	Stock, Sold int64
	Line        []string                        // the waiting buyers, the next one first
	Slots       map[string]string               // buyer to order
	Rows        map[string]pipeline.OrderStatus // order to status
}

func (l *life) compare() {
	want := lifeBooks{Stock: l.stockLeft(), Slots: map[string]string{}, Rows: map[string]pipeline.OrderStatus{}}
	for user, o := range l.slots {
		want.Slots[user] = o.id
	}
	for _, place := range l.line {
		want.Line = append(want.Line, place.user)
	}
	for _, o := range l.stored() {
		if want.Rows[o.id] = o.status; o.live() {
			want.Sold += o.quantity
		}
	}
	got := lifeBooks{
		Stock: l.Rig.Stock(l.sale),
		Sold:  l.Rig.Stored(l.sale.ID).Sold,
		Slots: map[string]string{},
		Rows:  map[string]pipeline.OrderStatus{},
	}
	for user, slot := range l.Rig.Slots(l.sale) {
		got.Slots[user] = slot.OrderID
	}
	var err error
	if got.Line, err = l.Redis.ZRange(l.Ctx(), l.Keys.Waitlist(0, l.sale.ID), 0, -1).Result(); err != nil {
		l.rt.Fatal(err)
	}
	rows, err := l.SQL.Query(l.Ctx(), `select id::text, status from orders where sale_id = $1`, l.sale.ID)
	if err != nil {
		l.rt.Fatal(err)
	}
	defer rows.Close()
	var id string
	var status pipeline.OrderStatus
	for rows.Next() {
		if err := rows.Scan(&id, &status); err != nil {
			l.rt.Fatal(err)
		}
		got.Rows[id] = status
	}
	if got.Stock != want.Stock || got.Sold != want.Sold || !slices.Equal(got.Line, want.Line) ||
		!maps.Equal(got.Slots, want.Slots) || !maps.Equal(got.Rows, want.Rows) {
		l.rt.Fatalf("the books:\ngot  %+v\nwant %+v", got, want)
	}
	if !slices.Equal(l.served, l.joined[:len(l.served)]) {
		l.rt.Fatalf("served %v of those who joined as %v", l.served, l.joined)
	}
	if want.Sold > l.total || want.Stock < 0 {
		l.rt.Fatalf("sold %d of %d, stock %d", want.Sold, l.total, want.Stock)
	}
}

// finish does what is left to do, and expects that every unit is in a live order or in stock, and each buyer with one
// has a slot.
func (l *life) finish() {
	l.rt.Helper()
	if err := l.Releaser().Apply(l.Ctx()); err != nil {
		l.rt.Fatalf("release: %v", err)
	}
	for _, o := range l.orders {
		if !o.live() && l.slots[o.user] == o {
			delete(l.slots, o.user)
		}
	}
	l.publish() // and serves those who can be served
	for _, o := range l.orders {
		if !o.stored {
			l.Rig.Persist(o.event)
			o.stored, o.status = true, pipeline.StatusConfirmed
		} else if !o.settled {
			l.Forget(o.event)
		}
	}
	l.paymentsAreRecorded()
	var live int64
	for _, o := range l.orders {
		if o.live() {
			live += o.quantity
		}
	}
	if got := l.Rig.Stock(l.sale); got+live != l.total {
		l.rt.Fatalf("%d in stock and %d in live orders are not %d", got, live, l.total)
	}
	report, err := l.Auditor.Audit(l.Ctx(), l.Rig.Stored(l.sale.ID))
	if err != nil || !report.Exact || !report.Clean() || report.Live != live {
		l.rt.Fatalf("audit: %+v, %v; want %d live units", report, err, live)
	}
}

// paymentsAreRecorded expects each payment in one record, and that of a paid order in the one that paid it.
func (l *life) paymentsAreRecorded() {
	var records, payers int
	err := l.SQL.QueryRow(l.Ctx(), `
		select count(*), count(*) filter (where p.outcome = 'paid' and o.status = 'paid' and o.payment_id = p.payment_id)
		from payments p join orders o on o.sale_id = p.sale_id and o.id = p.order_id
		where p.sale_id = $1`, l.sale.ID).Scan(&records, &payers)
	if err != nil {
		l.rt.Fatal(err)
	}
	paid := 0
	for _, o := range l.orders {
		if o.status == pipeline.StatusPaid {
			paid++
		}
	}
	if records != l.payCount || payers != paid {
		l.rt.Fatalf("%d records of %d payments, %d of them paid for %d orders", records, l.payCount, payers, paid)
	}
}
