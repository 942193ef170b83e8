package db_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"sluice/pipeline"
)

// TestPersistAgainstModel delivers random batches, with repetitions, rivals and forgeries, in random order, and holds
// outcomes and tables against a model after each of them.
func TestPersistAgainstModel(t *testing.T) {
	f := setup(t)
	rapid.Check(t, func(r *rapid.T) {
		f.exec(`truncate sales, orders, watermarks`)
		m := newModel(r, f)
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			if rapid.IntRange(0, 4).Draw(r, "what") == 0 {
				m.closeSome(r, f)
			} else {
				m.deliver(r, f)
			}
			m.compare(r, f)
		}
	})
}

// model is what the tables must hold.
type model struct {
	pool  []pipeline.Event // all that may ever be delivered
	total map[string]int64
	tables
}

type tables struct {
	Sold   map[string]int64
	Orders map[string]modelOrder // by sale and order id
	Marks  map[string]int64      // by sale and partition
}

type modelOrder struct {
	event  pipeline.Event
	closed bool
}

func modelKey(e pipeline.Event) string { return e.SaleID + "/" + e.OrderID }

func (t tables) clone() tables {
	return tables{maps.Clone(t.Sold), maps.Clone(t.Orders), maps.Clone(t.Marks)}
}

func newModel(r *rapid.T, f *fixture) *model {
	m := &model{total: map[string]int64{}, tables: tables{map[string]int64{}, map[string]modelOrder{}, map[string]int64{}}}
	for _, id := range []string{"a", "b", "c"} {
		m.total[id] = int64(rapid.IntRange(1, 40).Draw(r, "total"))
		m.Sold[id] = 0
		f.sale(id, m.total[id])
	}
	requests := rapid.SliceOfN(rapid.Custom(request), 10, 10).Draw(r, "requests")
	accept := rapid.Custom(func(r *rapid.T) pipeline.Event {
		e := rapid.SampledFrom(requests).Draw(r, "request")
		e.SaleID = rapid.SampledFrom([]string{"a", "a", "b", "c", "nowhere"}).Draw(r, "sale")
		e.Partition = pipeline.Partition(rapid.IntRange(0, 1).Draw(r, "partition"))
		e.Sequence = rapid.Int64Range(1, 9).Draw(r, "sequence")
		return e
	})
	m.pool = rapid.SliceOfN(accept, 5, 25).Draw(r, "events")
	return m
}

// request makes what all accepts of one order share: id, number, buyer and quantity. Different requests may have the
// same buyer, and by forgery the same number.
func request(r *rapid.T) pipeline.Event {
	e := event("", rapid.SampledFrom([]string{"u", "v", "w'\"", "ü", "x", "y", "z", "zz"}).Draw(r, "user"),
		rapid.IntRange(1, 9).Draw(r, "quantity"), 1)
	e.OrderID = uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, "id")).String()
	e.Number = rapid.Int64Range(1, 40).Draw(r, "number")
	return e
}

// deliver gives a random batch to the store and to the model.
func (m *model) deliver(r *rapid.T, f *fixture) {
	batch := rapid.SliceOfN(rapid.SampledFrom(m.pool), 1, 12).Draw(r, "batch")
	after, want, fits := m.persist(batch)
	got, err := f.store.PersistOrders(f.ctx(), 1, batch)
	if !fits {
		if pipeline.KindOf(err) != pipeline.KindData {
			r.Fatalf("more than the total: got %v, %v, want a KindData error", got, err)
		}
		return
	}
	if err != nil {
		r.Fatal(err)
	}
	if !slices.Equal(got, want) {
		r.Fatalf("outcomes: got %v, want %v", got, want)
	}
	m.tables = after
}

// persist is the rule book: what a batch makes of the tables, its outcomes, and whether it fits at all.
func (m *model) persist(batch []pipeline.Event) (after tables, outcomes []pipeline.PersistOutcome, fits bool) {
	after = m.clone()
	first := map[string]int{}
	var order []int
	for i, e := range batch {
		if _, ok := first[modelKey(e)]; !ok {
			first[modelKey(e)] = i
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(modelKey(batch[i]), modelKey(batch[j])) })
	outcomes = make([]pipeline.PersistOutcome, len(batch))
	for _, i := range order {
		if e := batch[i]; m.obstacle(after, e) == "" {
			after.insert(e)
			outcomes[i] = inserted
		}
	}
	for i, e := range batch {
		if outcomes[i] == "" {
			outcomes[i] = m.obstacle(after, e)
		}
	}
	for id, sold := range after.Sold {
		if sold > m.total[id] {
			return tables{}, nil, false
		}
	}
	return after, outcomes, true
}

func (t tables) insert(e pipeline.Event) {
	t.Orders[modelKey(e)] = modelOrder{event: e}
	t.Sold[e.SaleID] += int64(e.Quantity)
	mark := fmt.Sprint(e.SaleID, " ", int(e.Partition))
	t.Marks[mark] = max(t.Marks[mark], e.Sequence)
}

func (m *model) obstacle(t tables, e pipeline.Event) pipeline.PersistOutcome {
	if own, ok := t.Orders[modelKey(e)]; ok {
		if !own.closed || own.event.Partition == e.Partition && own.event.Sequence == e.Sequence {
			return redelivered
		}
		return readmitted
	}
	if _, ok := m.total[e.SaleID]; !ok {
		return unknownSale
	}
	found := pipeline.PersistOutcome("")
	for _, o := range t.Orders {
		switch {
		case !o.closed && o.event.SaleID == e.SaleID && o.event.UserID == e.UserID:
			return buyerConflict
		case o.event.Number == e.Number:
			found = numberConflict
		}
	}
	return found
}

// closeSome expires a random order, as the stage that does so will.
func (m *model) closeSome(r *rapid.T, f *fixture) {
	var live []string
	for key, o := range m.Orders {
		if !o.closed {
			live = append(live, key)
		}
	}
	if len(live) == 0 {
		return
	}
	slices.Sort(live)
	key := rapid.SampledFrom(live).Draw(r, "close")
	o := m.Orders[key]
	o.closed = true
	m.Orders[key] = o
	m.Sold[o.event.SaleID] -= int64(o.event.Quantity)
	f.exec(`
		with closed as (
			update orders set status = 'expired', closed_at = now() where sale_id || '/' || id = $1 returning sale_id, quantity
		)
		update sales set sold = sold - quantity from closed where sales.id = closed.sale_id`, key)
}

func (m *model) compare(r *rapid.T, f *fixture) {
	want := map[string]string{}
	for id, sold := range m.Sold {
		want["sale "+id] = fmt.Sprint(sold)
	}
	for mark, seq := range m.Marks {
		want["mark "+mark] = fmt.Sprint(seq)
	}
	for key, o := range m.Orders {
		e := o.event
		want["order "+key] = fmt.Sprint(e.Number, e.UserID, e.Quantity, int(e.Partition), e.Sequence, o.closed)
	}
	rows, err := f.raw.Query(f.ctx(), `
		select 'sale ' || id, sold::text from sales
		union all select 'mark ' || sale_id || ' ' || partition, seq::text from watermarks
		union all select 'order ' || sale_id || '/' || id,
			number || user_id || quantity || ' ' || partition || ' ' || sequence
			|| ' ' || (closed_at is not null) from orders`)
	if err != nil {
		r.Fatal(err)
	}
	got := map[string]string{}
	for rows.Next() {
		var key, value string
		if err := rows.Scan(&key, &value); err != nil {
			r.Fatal(err)
		}
		got[key] = value
	}
	if rows.Err() != nil || !maps.Equal(got, want) {
		r.Fatalf("tables (%v):\ngot  %v\nwant %v", rows.Err(), got, want)
	}
}
