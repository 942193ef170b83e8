package buyers

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verdict is a way in which something can be wrong.
type Verdict string

// The verdicts. All of them must be empty.
const (
	// accepted, and no row, another row than answered, or one that was rejected without a reason
	Lost Verdict = "lost"
	// two live orders of a buyer, two rows or two numbers of an order, two orders of a number
	Duplicated Verdict = "duplicated"
	Phantom    Verdict = "phantom" // a live row that no request can have caused
	// units neither in stock nor in a live order, slots without order, orders without slot
	Leaked       Verdict = "leaked"
	Oversold     Verdict = "oversold"     // more units in live orders than there are
	Contradicted Verdict = "contradicted" // answers that can't all be true, or that the stores belie
	Unburied     Verdict = "unburied"     // a poison without its letter, a letter or a rejected row without its reason
)

// Verdicts in the order in which they are reported.
var Verdicts = []Verdict{Lost, Duplicated, Phantom, Leaked, Oversold, Contradicted, Unburied}

// rule is one thing that must be true at the end.
type rule string

const (
	ruleAccepted   rule = "every 202 is exactly one order"
	ruleNoStranger rule = "no order without a 202"
	ruleSoldOut    rule = "the rush sold out to the unit: no oversell, no undersell"
	ruleOneEach    rule = "one order per buyer"
	ruleSameOrder  rule = "asking again never gave another order"
	ruleNoLie      rule = "nobody with an order was answered sold-out"
	ruleAnswered   rule = "every question was answered"
	ruleOnePayment rule = "every paid order has exactly one payment"
	ruleOnce       rule = "a payment reported twice counted once"
	ruleBadMoney   rule = "wrong and forged payments changed nothing"
	ruleEnds       rule = "every order ended as its buyer saw it"
	ruleInOrder    rule = "units went to those who waited, in the order in which they had joined"
	ruleTurns      rule = "a buyer whose turn came has the order, one who left has none"
	ruleUnits      rule = "units paid + units left = units for sale"
	ruleSlots      rule = "slots and counters agree with the orders"
	ruleLetters    rule = "every poison has its letter"
)

var rules = []rule{
	ruleAccepted, ruleNoStranger, ruleSoldOut, ruleOneEach, ruleSameOrder, ruleNoLie, ruleAnswered,
	ruleOnePayment, ruleOnce,
	ruleBadMoney, ruleEnds, ruleInOrder, ruleTurns, ruleUnits, ruleSlots, ruleLetters,
}

// Span is a time after the start.
type Span struct{ From, To time.Duration }

// Terms say what must be true of a run besides what always must.
type Terms struct {
	Answered bool // every request has an answer in the end, and no answer was strange
	Lossy    bool // Redis lost data: an accept may be taken back, with a dead letter, and a slot forgets its key
	// Blind are times in which an API could not know what the others sell: what it says is sold out may not be.
	Blind []Span
	// Stock and Price are of the one sale that the rush must sell out, and whose units are all paid or for sale in
	// the end. 0: sales are free, nothing ends, and none has to sell out.
	Stock    int
	Price    int // of a unit, in minor units
	Currency string
}

// reasonRedisLost is the letter of an accept that Redis lost and nobody could bring back.
const reasonRedisLost = "redis-lost"

// Finding is one thing that is wrong.
type Finding struct {
	Verdict Verdict
	Text    string
	rule    rule
	user    string // concerned; or ""
	order   string
}

// Proof compares a history with the stores.
type Proof struct {
	Findings []Finding
	Promised int // orders that an answer named to their buyers
	Refused  int // of them that were taken back later, with a letter
	Unknown  int // rows of buyers who don't know of them: the answers were lost

	history *History
	stores  *Stores
	terms   Terms
	details map[rule]string // what was counted

	buyers    map[uint32]*memory
	owners    map[string]uint32 // of the orders that a 202 named, but for those of the waitlist
	promised  map[string]bool   // orders that any answer named
	ordersOf  map[string][]*Order
	lettersOf map[string][]letter // by order
	poisonOf  map[string]Poison   // by entry, and by order
}

// Prove compares everything with everything. Without stores it only compares the answers with each other.
func Prove(h *History, s *Stores, t Terms) *Proof {
	owners := h.Owners()
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &Proof{
		history: h, stores: s, terms: t, buyers: h.recall(), owners: owners, details: map[rule]string{},
		promised: map[string]bool{},
		ordersOf: map[string][]*Order{}, lettersOf: map[string][]letter{}, poisonOf: map[string]Poison{},
	}
	p.index()
	p.checkPromises()
	p.checkAnswers()
	if s == nil {
		return p
	}
	p.checkRows()
	p.checkSales()
	p.checkLetters()
	if t.Stock > 0 {
		p.checkSoldOut()
		p.checkPayments()
		p.checkBadPayments()
		p.checkEnds()
		p.checkInOrder()
		p.checkTurns()
	}
	return p
}

// Counts says how many findings there are of each verdict.
func (p *Proof) Counts() map[Verdict]int {
	counts := map[Verdict]int{}
	for _, f := range p.Findings {
		counts[f.Verdict]++
	}
	return counts
}

// Check is one thing that must be true at the end.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // what was counted; when it is not OK, what is wrong
}

// maxExamples bounds how many findings a failed check names.
const maxExamples = 3

// Checks says of each rule that was looked at whether it is kept.
func (p *Proof) Checks() []Check {
	var checks []Check
	for _, rule := range rules {
		var wrong []string
		for _, f := range p.Findings {
			if f.rule == rule {
				wrong = append(wrong, f.Text)
			}
		}
		detail, counted := p.details[rule]
		if n := len(wrong); n > 0 {
			detail = fmt.Sprintf("%d wrong: %s", n, strings.Join(wrong[:min(n, maxExamples)], "; "))
			if n > maxExamples {
				detail += "; …"
			}
		}
		if counted || len(wrong) > 0 {
			checks = append(checks, Check{string(rule), len(wrong) == 0, detail})
		}
	}
	return checks
}

// Describe says all that is known about the buyer and the order of a finding. It goes through the whole history.
func (p *Proof) Describe(f Finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", f.Verdict, f.Text)
	line := func(format string, args ...any) { fmt.Fprintf(&b, "      "+format+"\n", args...) }
	began := p.history.Began
	for _, fact := range p.history.Facts() {
		if fact.User() == f.user {
			line("%s %s: %d of %s, with key: %t; order %s number %d", Clock(fact.At), fact.Outcome.Code(),
				fact.Quantity, fact.Sale, fact.Key != NoKey, fact.Order, fact.Number)
		}
	}
	for i := range p.stores.Orders {
		if r := &p.stores.Orders[i]; f.user != "" && r.User == f.user || r.ID == f.order {
			line("row %s: %s, %d of %s for %s, number %v, accepted %s, persisted %s, %q", r.ID, r.Status, r.Quantity,
				r.Sale, r.User, r.number(),
				Clock(r.AcceptedAt.Sub(began)), Clock(r.PersistedAt.Sub(began)), r.Reason)
		}
	}
	for _, l := range p.lettersOf[f.order] {
		line("letter %s of entry %s: %s %s", l.Order, l.Entry, l.Reason, l.Error)
	}
	for _, sale := range p.stores.sales {
		if one, ok := sale.slots[f.user]; ok {
			line("slot in %s: order %s, %d units", sale.id, one.order, one.quantity)
		}
	}
	return b.String()
}

// Clock is a time since the start, as reports show it.
func Clock(at time.Duration) string { return fmt.Sprintf("%8.3fs", at.Seconds()) }

func (r *Order) number() int64 {
	if r.Number == nil {
		return 0
	}
	return *r.Number
}

func (p *Proof) index() {
	for _, m := range p.buyers {
		for _, one := range m.promises() {
			p.promised[one.order] = true
		}
	}
	for _, e := range p.history.entries {
		p.promised[e.order] = true
	}
	for _, one := range p.history.poisons {
		if one.Entry != "" {
			p.poisonOf[one.Entry] = one
		}
		if one.Order != "" {
			p.poisonOf[one.Order] = one
		}
	}
	if p.stores == nil {
		return
	}
	for i := range p.stores.Orders {
		r := &p.stores.Orders[i]
		p.ordersOf[r.ID] = append(p.ordersOf[r.ID], r)
	}
	for _, l := range p.stores.letters {
		p.lettersOf[l.Order] = append(p.lettersOf[l.Order], l)
	}
}

// subject is what a finding concerns.
type subject struct {
	rule        rule
	user, order string
}

func (p *Proof) find(v Verdict, w subject, format string, args ...any) {
	p.Findings = append(p.Findings, Finding{v, fmt.Sprintf(format, args...), w.rule, w.user, w.order})
}

func (p *Proof) detail(r rule, format string, args ...any) {
	p.details[r] = fmt.Sprintf(format, args...)
}

// live reports whether an order has its units at the end of the run, when nothing is left unpaid.
func (p *Proof) live(r *Order) bool {
	if p.terms.Price > 0 {
		return r.Status == statusPaid
	}
	return r.Status == statusConfirmed
}

// explained reports whether a letter says why an accepted order was rejected.
func (p *Proof) explained(order string) bool {
	return p.terms.Lossy && slices.ContainsFunc(p.lettersOf[order],
		func(l letter) bool { return l.Reason == reasonRedisLost })
}
