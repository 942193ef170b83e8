package lua_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
)

// TestMovesAgainstModel runs random interleavings of orders, releases, restocks and moves over three partitions of a
// sale. A move is finished by anyone: each of its steps may be sent at any time, again, late, by a process that knows
// less, and its answer may be lost before it is recorded. No unit is lost or made at any instant, and once all moves
// are finished, none is on the way.
func TestMovesAgainstModel(t *testing.T) {
	t.Parallel()
	rdb := testkit.Client(t, testkit.PrivateRedis(t, "appendonly no").URL())
	moves, late := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		m := &mover{}
		if err := rdb.FlushAll(ctx).Err(); err != nil {
			rt.Fatal(err)
		}
		for i := range 3 {
			layout := pipeline.Keys{Prefix: fmt.Sprint("part", i)}
			f := &fixture{tester: rt, ctx: ctx, rdb: rdb, saleKeys: saleKeysOf(layout), layout: layout, maxEvents: plenty}
			f.trust()
			part := &part{fixture: f, live: map[string]int{}, takes: map[int64]int64{}, gives: map[int64]int64{}}
			part.sale = f.load(f.openSale(rapid.Int64Range(0, 6).Draw(rt, "share")))
			m.parts = append(m.parts, part)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": m.check, "order": m.order, "release": m.release, "adjust": m.adjust,
			"begin": m.begin, "take": m.take, "take 2": m.take, "give": m.give, "give 2": m.give,
		})
		m.finish(rt)
		moves, late = moves+len(m.moves), late+m.late
	})
	t.Logf("%d moves, %d calls for moves that had been forgotten", moves, late)
}

// mover is the model. Its list of moves is what Postgres would have.
type mover struct {
	parts []*part
	moves []*recordedMove // by number, from 1
	late  int
	n     int // orders
}

type recordedMove struct {
	from, to *part
	units    int64 // wanted; from taken on, those taken
	state    string
}

// part is a partition: what Redis should have of it.
type part struct {
	*fixture
	sale         lua.SaleFields
	in, out      int64
	done         int64
	takes, gives map[int64]int64 // units by move, until forgotten
	live         map[string]int  // units by user
}

func (p *part) forget(done int64) {
	p.done = max(p.done, done)
	for _, record := range []map[int64]int64{p.takes, p.gives} {
		for number := range record {
			if number <= done {
				delete(record, number)
			}
		}
	}
}

func (m *mover) part(t *rapid.T, what string) *part {
	return m.parts[rapid.IntRange(0, len(m.parts)-1).Draw(t, what)]
}

// done is the number up to which all moves have ended, as the caller knows it, who may have read it long ago.
func (m *mover) done(t *rapid.T, number int64) int64 {
	var done int64
	for _, move := range m.moves {
		if move.state != "given" && move.state != "void" {
			break
		}
		done++
	}
	done = min(done, number-1)
	if rapid.Bool().Draw(t, "knows less") {
		done = rapid.Int64Range(0, done).Draw(t, "done")
	}
	return done
}

func (m *mover) order(t *rapid.T) {
	p := m.part(t, "partition")
	m.n++
	r := request(m.n, fmt.Sprint("user", m.n))
	r.Quantity = rapid.IntRange(1, 3).Draw(t, "quantity")
	want := lua.AdmitSoldOut
	if int64(r.Quantity) <= p.sale.Stock {
		want = lua.AdmitAccepted
		p.sale.Stock -= int64(r.Quantity)
		p.live[r.UserID] = r.Quantity
	}
	same(t, "order", codes(p.mustAdmit(r))[0], want)
}

func (m *mover) release(t *rapid.T) {
	p := m.part(t, "partition")
	for n := 1; n <= m.n; n++ {
		user := fmt.Sprint("user", n)
		if units, ok := p.live[user]; ok {
			p.giveBack(user, n)
			p.sale.Stock += int64(units)
			delete(p.live, user)
			return
		}
	}
}

func (m *mover) adjust(t *rapid.T) {
	p := m.part(t, "partition")
	next := p.sale
	next.Version++
	next.Total = rapid.Int64Range(0, 8).Draw(t, "total")
	next.Stock += next.Total - p.sale.Total
	want := lua.AdjustAdjusted
	if next.Stock < 0 {
		want, next = lua.AdjustBelowTaken, p.sale
	}
	sent := next
	if want == lua.AdjustBelowTaken {
		return // a reduction moves units first
	}
	same(t, "adjust", p.mustAdjust(sent), want)
	p.sale = next
}

func (m *mover) begin(t *rapid.T) {
	from := m.part(t, "from")
	to := m.part(t, "to")
	if from != to {
		units := rapid.Int64Range(1, 4).Draw(t, "units")
		m.moves = append(m.moves, &recordedMove{from: from, to: to, units: units, state: "intended"})
	}
}

// move draws one of those that have been begun, whatever has become of it since.
func (m *mover) move(t *rapid.T) (int64, *recordedMove) {
	if len(m.moves) == 0 {
		return 0, nil
	}
	number := rapid.IntRange(1, len(m.moves)).Draw(t, "move")
	return int64(number), m.moves[number-1]
}

func (m *mover) take(t *rapid.T) {
	number, move := m.move(t)
	if move == nil {
		return
	}
	sent := lua.Move{Number: number, Units: move.units, Done: m.done(t, number)}
	if rapid.IntRange(0, 4).Draw(t, "finish") == 0 {
		sent.Units = 0
	}
	m.takeOne(t, move, sent, rapid.IntRange(0, 2).Draw(t, "answer lost") > 0)
}

func (m *mover) takeOne(t *rapid.T, move *recordedMove, sent lua.Move, recorded bool) {
	p := move.from
	units, known := p.takes[sent.Number]
	forgotten := !known && sent.Number <= p.done
	if !known && !forgotten {
		units = min(sent.Units, p.sale.Stock)
		p.sale.Stock -= units
		p.out += units
		p.takes[sent.Number] = units
		p.forget(sent.Done)
	}
	got, _, err := lua.Take(p.ctx, p.rdb, p.saleKeys, sent)
	if forgotten {
		m.late++
		if !errors.Is(err, lua.ErrMoveFinished) {
			t.Fatalf("take of a forgotten move: got %v", err)
		}
		return
	}
	if err != nil || got != units {
		t.Fatalf("take %+v: got %d, %v, want %d", sent, got, err, units)
	}
	if recorded && move.state == "intended" {
		move.units, move.state = units, "taken"
		if units == 0 {
			move.state = "void"
		}
	}
}

func (m *mover) give(t *rapid.T) {
	number, move := m.move(t)
	if move == nil || move.state == "intended" || move.state == "void" {
		return
	}
	sent := lua.Move{Number: number, Units: move.units, Done: m.done(t, number)}
	m.giveOne(t, move, sent, rapid.IntRange(0, 2).Draw(t, "answer lost") > 0)
}

func (m *mover) giveOne(t *rapid.T, move *recordedMove, sent lua.Move, recorded bool) {
	p := move.to
	_, known := p.gives[sent.Number]
	forgotten := !known && sent.Number <= p.done
	if !known && !forgotten {
		p.sale.Stock += sent.Units
		p.in += sent.Units
		p.gives[sent.Number] = sent.Units
		p.forget(sent.Done)
	}
	_, _, err := lua.Give(p.ctx, p.rdb, p.saleKeys, saleID, plenty, sent)
	if forgotten {
		m.late++
		if !errors.Is(err, lua.ErrMoveFinished) {
			t.Fatalf("give of a forgotten move: got %v", err)
		}
		return
	}
	if err != nil {
		t.Fatalf("give %+v: %v", sent, err)
	}
	if recorded {
		move.state = "given"
	}
}

// check compares each partition with the model, and counts all units of the sale by what Redis has alone.
func (m *mover) check(t *rapid.T) {
	var total, stock, live, in, out int64
	for _, p := range m.parts {
		got := p.hash(p.saleKeys.Sale)
		total, stock = total+number(got["total"]), stock+number(got["stock"])
		for _, slot := range p.hash(p.saleKeys.Buyers) {
			live += number(strings.Fields(slot)[1])
		}
		want := map[string]int64{}
		if p.done > 0 {
			want["moves_done"] = p.done
		}
		if got["moved_in"] != "" {
			in += number(got["moved_in"])
			want["moved_in"] = p.in
		}
		if got["moved_out"] != "" {
			out += number(got["moved_out"])
			want["moved_out"] = p.out
		}
		for number, units := range p.takes {
			want[fmt.Sprint("out:", number)] = units
		}
		for number, units := range p.gives {
			want[fmt.Sprint("in:", number)] = units
		}
		released := number(got["released"])
		accepted := number(got["accepted"])
		hash := moved(p.sale, accepted, want)
		hash["released"] = fmt.Sprint(released)
		same(t, "sale", got, hash)
	}
	if stock+live+out-in != total || out < in {
		t.Fatalf("stock %d, live %d, %d units left a partition and %d arrived: that is not the total, %d", stock, live, out,
			in, total)
	}
}

// finish is the job that finishes what others have begun: every move ends, and nothing stays on the way.
func (m *mover) finish(t *rapid.T) {
	for i, move := range m.moves {
		number := int64(i + 1)
		if move.state == "intended" {
			m.takeOne(t, move, lua.Move{Number: number}, true)
		}
		if move.state == "taken" {
			m.giveOne(t, move, lua.Move{Number: number, Units: move.units}, true)
		}
	}
	m.check(t)
	var in, out int64
	for _, p := range m.parts {
		in, out = in+p.in, out+p.out
	}
	same(t, "units on the way", out-in, 0)
}
