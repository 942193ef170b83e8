package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/testkit"
)

// tampering is a finished run whose stores are changed by hand, to see what the proof says.
type tampering struct {
	*stage
	t   *testing.T
	ctx context.Context
}

func (p *tampering) counts() map[Verdict]int {
	p.t.Helper()
	proof, err := p.prove(p.ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	return proof.counts()
}

func (p *tampering) exec(sql string, args ...any) {
	p.t.Helper()
	tag, err := p.cast.pool.Exec(p.ctx, sql, args...)
	if err != nil || tag.RowsAffected() == 0 && (tag.Insert() || tag.Update() || tag.Delete()) {
		p.t.Fatalf("%s: %d rows, %v", sql, tag.RowsAffected(), err)
	}
}

func (p *tampering) redis(args ...any) {
	p.t.Helper()
	if err := p.cast.rdb.Do(p.ctx, args...).Err(); err != nil {
		p.t.Fatalf("%v: %v", args, err)
	}
}

// told returns the n-th fact of a kind about a sale.
func (p *tampering) told(kind told, sale uint8, n int) fact {
	p.t.Helper()
	for _, f := range p.history.facts {
		if f.told == kind && f.sale == sale {
			if n--; n < 0 {
				return f
			}
		}
	}
	p.t.Fatalf("nobody was told %q", kind)
	return fact{}
}

// refused returns somebody who was told sold-out, and nothing else: whoever lacks an answer may have an order. "" if nobody.
func (h *history) refused(sale uint8) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	unanswered := map[uint32]bool{}
	for _, f := range h.facts {
		unanswered[f.buyer] = unanswered[f.buyer] || f.told == toldNothing
	}
	for _, f := range h.facts {
		if f.told == toldSoldOut && f.sale == sale && !unanswered[f.buyer] {
			return userOf(f.buyer)
		}
	}
	return ""
}

// row inserts a live order of one unit.
func (p *tampering) row(sale, user string, id uuid.UUID) {
	p.t.Helper()
	p.exec(`insert into orders (sale_id, id, number, user_id, quantity, status, partition, sequence, accepted_at)
		values ($1, $2, $3, $4, 1, 'confirmed', 0, 1, now())`, sale, id, p.poisonNumber(), user)
}

// TestEveryWrongIsFound changes the stores of a run that was fine, in every way that a verdict is about.
func TestEveryWrongIsFound(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	s, err := openStage(ctx, Options{Calm: true, Duration: 3 * time.Second}.WithDefaults(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	const drop = 1
	s.playWhile(ctx, func() { // on a busy machine the first drop takes long to sell out
		testkit.Eventually(t, 3*time.Minute, "a buyer who came too late", func() bool { return s.history.refused(drop) != "" })
	})
	report, err := s.report(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK {
		t.Fatalf("the run itself: %q %q", report.Wrong, report.Findings)
	}
	p := &tampering{s, t, ctx}
	p.exec(`alter table orders drop constraint orders_number_key`)
	p.exec(`drop index orders_live_buyer_key`)
	p.exec(`alter table orders disable trigger user`)
	p.exec(`alter table sales drop constraint sales_sold_within_total`)
	dropID := s.sales[drop].ID
	dropKey := fmt.Sprintf("sluice:{%s}:", s.sales[drop].Partitions[0])
	next := 0
	accepted := func(sale uint8) fact {
		next += 2 // repeated answers stand side by side
		return p.told(toldAccepted, sale, next)
	}
	before := p.counts()
	for _, one := range []struct {
		what   string
		want   Verdict
		tamper func()
	}{
		{"a row is gone", Lost, func() { p.exec(`delete from orders where id = $1`, accepted(0).order) }},
		{"a row has other units", Lost, func() { p.exec(`update orders set quantity = 7 where id = $1`, accepted(0).order) }},
		{"a row has another buyer", Lost, func() { p.exec(`update orders set user_id = 'x' where id = $1`, accepted(0).order) }},
		{"a row has another number", Lost, func() { p.exec(`update orders set number = number + 7 where id = $1`, accepted(0).order) }},
		{"an order is rejected without a letter", Lost, func() {
			p.exec(`update orders set status = 'rejected', reason = 'x', closed_at = now() where id = $1`, accepted(0).order)
		}},
		{"a buyer has a second live order", Duplicated, func() { p.row(bigSale, userOf(accepted(0).buyer), uuid.New()) }},
		{"an order has a second row", Duplicated, func() { f := accepted(0); p.row(dropID, userOf(f.buyer), f.order) }},
		{"an order was told with two numbers", Duplicated, func() { f := accepted(0); f.number++; s.history.note(f) }},
		{"a buyer was told of two orders", Duplicated, func() { f := accepted(0); f.order = uuid.New(); s.history.note(f) }},
		{"a row of nobody", Phantom, func() { p.row(bigSale, "somebody", uuid.New()) }},
		{"a row of a buyer of something else", Phantom, func() { p.row(dropID, userOf(accepted(0).buyer), uuid.New()) }},
		{"a row of a buyer who was refused", Phantom, func() { p.row(dropID, s.history.refused(drop), uuid.New()) }},
		{"a unit is missing in Redis", Leaked, func() { p.redis("HINCRBY", dropKey+"sale:"+dropID, "stock", -1000) }},
		{"units too many in Redis", Oversold, func() { p.redis("HINCRBY", dropKey+"sale:"+dropID, "stock", 100000) }},
		{"a slot without an order", Leaked, func() { p.redis("HSET", dropKey+"buyers:"+dropID, "stray", "x 1 1 1 1 - -") }},
		{"an order without a slot", Leaked, func() { p.redis("HDEL", dropKey+"buyers:"+dropID, userOf(accepted(drop).buyer)) }},
		{"a slot of another order", Leaked, func() { p.redis("HSET", dropKey+"buyers:"+dropID, userOf(accepted(drop).buyer), "x 1 1 1 1 - -") }},
		{"the counter in Postgres is wrong", Leaked, func() { p.exec(`update sales set sold = sold - 3 where id = $1`, s.sales[2].ID) }},
		{"more is sold than there is", Oversold, func() { p.exec(`update sales set total = 1 where id = $1`, bigSale) }},
		{"a sale is gone from Redis", Leaked, func() { p.redis("DEL", dropKey+"sale:"+dropID) }},
		{"sold-out to a buyer with an order", Contradicted, func() { f := accepted(drop); f.told = toldSoldOut; s.history.note(f) }},
		{"already-ordered to the own key", Contradicted, func() { f := accepted(drop); f.told, f.keyed = toldNamed, true; s.history.note(f) }},
		{"a letter that nobody caused", Unburied, func() {
			p.exec(`insert into dead_letters (partition, entry_id, payload, reason, error, deliveries) values (0, '1-1', '{}', 'x', '', 0)`)
		}},
		{"a poison without a letter", Unburied, func() { s.history.poisoned(poison{entry: "2-2", lettered: true}) }},
		{"a rejected order without a reason", Unburied, func() {
			p.exec(`insert into orders (sale_id, id, user_id, quantity, status, reason, partition, sequence, accepted_at, closed_at)
				values ($1, $2, 'x', 1, 'rejected', 'x', 0, 1, now(), now())`, bigSale, uuid.New())
		}},
	} {
		one.tamper()
		after := p.counts()
		if after[one.want] <= before[one.want] {
			t.Errorf("%s: %q stays at %d", one.what, one.want, after[one.want])
		}
		before = after
	}
	report, err = s.report(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if report.OK || len(report.Findings) == 0 || len(report.Wrong) == 0 {
		t.Errorf("got OK: %t, %d findings, %d more, want a report that says what is wrong", report.OK, len(report.Findings), len(report.Wrong))
	}
}

// TestProofExcusesWhatIsTold: after Redis lost data an order may be rejected with the letter for it, and only then.
func TestProofExcusesWhatIsTold(t *testing.T) {
	t.Parallel()
	order := uuid.New()
	facts := []fact{{told: toldAccepted, buyer: 1, quantity: 1, order: order, number: 5, keyed: true}}
	number := int64(5)
	b := &books{
		rows:    []row{{Sale: bigSale, ID: order, Number: &number, User: userOf(1), Quantity: 1, Status: "rejected", Reason: reasonRedisLost}},
		letters: []letter{{Entry: "1-1", Sale: bigSale, Order: order.String(), Reason: reasonRedisLost}},
		shelves: []shelf{{id: bigSale, total: 10, stock: 10}},
	}
	if p := prove(facts, nil, []string{bigSale}, b, true); len(p.findings) != 0 || p.refusedLater != 1 {
		t.Errorf("got %+v and %d taken back, want none and 1", p.findings, p.refusedLater)
	}
	if p := prove(facts, nil, []string{bigSale}, b, false); p.counts()[Lost] != 1 {
		t.Errorf("got %+v without a loss of Redis, want a lost order", p.findings)
	}
	b.letters = nil
	if p := prove(facts, nil, []string{bigSale}, b, true); p.counts()[Lost] != 1 {
		t.Errorf("got %+v without a letter, want a lost order", p.findings)
	}
}
