package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/buyers"
	"sluice/internal/testkit"
)

// tampering is a finished run whose stores are changed by hand, to see what the proof says.
type tampering struct {
	*run
	t   *testing.T
	ctx context.Context
}

func (p *tampering) counts() map[buyers.Verdict]int {
	p.t.Helper()
	proof, _, err := p.prove(p.ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	return proof.Counts()
}

func (p *tampering) exec(sql string, args ...any) {
	p.t.Helper()
	tag, err := p.system.pool.Exec(p.ctx, sql, args...)
	if err != nil || tag.RowsAffected() == 0 && (tag.Insert() || tag.Update() || tag.Delete()) {
		p.t.Fatalf("%s: %d rows, %v", sql, tag.RowsAffected(), err)
	}
}

func (p *tampering) redis(args ...any) {
	p.t.Helper()
	if err := p.system.rdb.Do(p.ctx, args...).Err(); err != nil {
		p.t.Fatalf("%v: %v", args, err)
	}
}

// fact returns the n-th with an outcome about a sale.
func (p *tampering) fact(outcome buyers.Outcome, sale string, n int) buyers.Fact {
	p.t.Helper()
	for _, f := range p.history.Facts() {
		if f.Outcome == outcome && f.Sale == sale {
			if n--; n < 0 {
				return f
			}
		}
	}
	p.t.Fatalf("nobody got %q", outcome.Code())
	return buyers.Fact{}
}

// refused returns somebody who got sold-out, and nothing else: a buyer without an answer may have an order. "" if
// nobody.
func refused(h *buyers.History, sale string) string {
	facts := h.Facts()
	unanswered := map[uint32]bool{}
	for _, f := range facts {
		unanswered[f.Buyer] = unanswered[f.Buyer] || f.Outcome == buyers.NoAnswer
	}
	for _, f := range facts {
		if f.Outcome == buyers.SoldOut && f.Sale == sale && !unanswered[f.Buyer] {
			return f.User()
		}
	}
	return ""
}

// row inserts a live order of one unit.
func (p *tampering) row(sale, user, id string) {
	p.t.Helper()
	p.exec(`insert into orders (sale_id, id, number, user_id, quantity, status, partition, sequence, accepted_at)
		values ($1, $2, $3, $4, 1, 'confirmed', 0, 1, now())`, sale, id, p.poisonNumber(), user)
}

// TestEveryWrongIsFound changes the stores of a run that was fine, in every way that a verdict is about.
func TestEveryWrongIsFound(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	s, err := newRun(ctx, Options{Calm: true, Duration: 3 * time.Second}.WithDefaults(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	dropID := s.sales[1].ID
	s.shopWhile(ctx, func() { // on a busy machine the first drop takes long to sell out
		testkit.Eventually(t, 3*time.Minute, "a buyer who came too late",
			func() bool { return refused(s.history, dropID) != "" })
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
	p.exec(`alter table sales drop constraint sales_sold_within_total, drop constraint sales_withdrawn_within_total`)
	dropKey := fmt.Sprintf("sluice:{%s}:", s.sales[1].Partitions[0])
	next := 0
	accepted := func(sale string) buyers.Fact {
		next += 2 // repeated answers stand side by side
		return p.fact(buyers.Accepted, sale, next)
	}
	fresh := func() string { return uuid.New().String() }
	before := p.counts()
	for _, one := range []struct {
		what   string
		want   buyers.Verdict
		tamper func()
	}{
		{"a row is gone", buyers.Lost, func() { p.exec(`delete from orders where id = $1`, accepted(bigSale).Order) }},
		{
			"a row has other units", buyers.Lost,
			func() { p.exec(`update orders set quantity = 7 where id = $1`, accepted(bigSale).Order) },
		},
		{
			"a row has another buyer", buyers.Lost,
			func() { p.exec(`update orders set user_id = 'x' where id = $1`, accepted(bigSale).Order) },
		},
		{
			"a row has another number", buyers.Lost,
			func() { p.exec(`update orders set number = number + 7 where id = $1`, accepted(bigSale).Order) },
		},
		{"an order is rejected without a letter", buyers.Lost, func() {
			p.exec(`update orders set status = 'rejected', reason = 'x', closed_at = now() where id = $1`,
				accepted(bigSale).Order)
		}},
		{
			"a buyer has a second live order", buyers.Duplicated,
			func() { p.row(bigSale, accepted(bigSale).User(), fresh()) },
		},
		{
			"an order has a second row", buyers.Duplicated,
			func() { f := accepted(bigSale); p.row(dropID, f.User(), f.Order) },
		},
		{
			"an order was answered with two numbers", buyers.Duplicated,
			func() { f := accepted(bigSale); f.Number++; s.history.Note(f) },
		},
		{
			"a buyer was answered with two orders", buyers.Duplicated,
			func() { f := accepted(bigSale); f.Order = fresh(); s.history.Note(f) },
		},
		{"a row of nobody", buyers.Phantom, func() { p.row(bigSale, "somebody", fresh()) }},
		{
			"a row of a buyer of something else", buyers.Phantom,
			func() { p.row(dropID, accepted(bigSale).User(), fresh()) },
		},
		{
			"a row of a buyer who was refused", buyers.Phantom,
			func() { p.row(dropID, refused(s.history, dropID), fresh()) },
		},
		{
			"a unit is missing in Redis", buyers.Leaked,
			func() { p.redis("HINCRBY", dropKey+"sale:"+dropID, "stock", -1000) },
		},
		{
			"units too many in Redis", buyers.Oversold,
			func() { p.redis("HINCRBY", dropKey+"sale:"+dropID, "stock", 100000) },
		},
		{
			"a slot without an order", buyers.Leaked,
			func() { p.redis("HSET", dropKey+"buyers:"+dropID, "stray", "x 1 1 1 1 - -") },
		},
		{
			"an order without a slot", buyers.Leaked,
			func() { p.redis("HDEL", dropKey+"buyers:"+dropID, accepted(dropID).User()) },
		},
		{
			"a slot of another order", buyers.Leaked,
			func() { p.redis("HSET", dropKey+"buyers:"+dropID, accepted(dropID).User(), "x 1 1 1 1 - -") },
		},
		{
			"the counter in Postgres is wrong", buyers.Leaked,
			func() { p.exec(`update sales set sold = sold - 3 where id = $1`, s.sales[2].ID) },
		},
		{
			"more is sold than there is", buyers.Oversold,
			func() { p.exec(`update sales set total = 1 where id = $1`, bigSale) },
		},
		{"a sale is gone from Redis", buyers.Leaked, func() { p.redis("DEL", dropKey+"sale:"+dropID) }},
		{
			"sold-out to a buyer with an order", buyers.Contradicted,
			func() { f := accepted(dropID); f.Outcome = buyers.SoldOut; s.history.Note(f) },
		},
		{
			"already-ordered to the own key", buyers.Contradicted,
			func() { f := accepted(dropID); f.Outcome = buyers.AlreadyOrdered; s.history.Note(f) },
		},
		{"a letter that nobody caused", buyers.Unburied, func() {
			p.exec(`insert into dead_letters (partition, entry_id, payload, reason, error, deliveries) values (0, '1-1', '{}', 'x', '', 0)`)
		}},
		{
			"a poison without a letter", buyers.Unburied,
			func() { s.history.NotePoison(buyers.Poison{Entry: "2-2", Lettered: true}) },
		},
		{"a rejected order without a reason", buyers.Unburied, func() {
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
		t.Errorf("got OK: %t, %d findings, %d more, want a report that says what is wrong", report.OK,
			len(report.Findings), len(report.Wrong))
	}
}
