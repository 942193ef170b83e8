package chaos

import (
	"fmt"
	"strings"
	"time"
)

// explained findings at most; each takes a look through the whole history.
const maxExplained = 20

// explain tells all that is known about whoever a finding concerns.
func (s *stage) explain(f finding, p *proof) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", f.Verdict, f.Text)
	line := func(format string, args ...any) { fmt.Fprintf(&b, "      "+format+"\n", args...) }
	for _, fact := range s.history.facts {
		if f.user == "" || userOf(fact.buyer) != f.user {
			continue
		}
		line("%s %s: %d of %s, with key: %t; order %s number %d", s.clock(time.Duration(fact.at)), fact.told, fact.quantity, p.sales[fact.sale], fact.keyed, fact.order, fact.number)
	}
	for i := range p.books.rows {
		if r := &p.books.rows[i]; f.user != "" && r.User == f.user || r.ID.String() == f.order {
			line("row %s: %s, %d of %s for %s, number %v, accepted %s, persisted %s, %q", r.ID, r.Status, r.Quantity, r.Sale, r.User, deref(r.Number),
				s.clock(r.AcceptedAt.Sub(s.history.began)), s.clock(r.PersistedAt.Sub(s.history.began)), r.Reason)
		}
	}
	for _, l := range p.lettersOf[f.order] {
		line("letter %s of entry %s: %s %s", l.Order, l.Entry, l.Reason, l.Error)
	}
	for i := range p.books.shelves {
		if held, ok := p.books.shelves[i].slots[f.user]; ok {
			line("slot in %s: order %s, %d units", p.books.shelves[i].id, held.order, held.quantity)
		}
	}
	return b.String()
}

func (s *stage) clock(at time.Duration) string { return fmt.Sprintf("%8.3fs", at.Seconds()) }

func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
