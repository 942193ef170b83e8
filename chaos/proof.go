package chaos

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Verdict is a way in which something can be wrong.
type Verdict string

// The verdicts. All of them must be empty.
const (
	Lost         Verdict = "lost"         // told 202, and no row, another row than told, or one that was rejected without a reason
	Duplicated   Verdict = "duplicated"   // two live orders of a buyer, two rows or two numbers of an order, two orders of a number
	Phantom      Verdict = "phantom"      // a live row that no request can have caused
	Leaked       Verdict = "leaked"       // units neither in stock nor in a live order, slots without order, orders without slot
	Oversold     Verdict = "oversold"     // more units in live orders than there are
	Contradicted Verdict = "contradicted" // answers to one buyer that can't all be true
	Unburied     Verdict = "unburied"     // a poison without its letter, a letter or a rejected row without its reason
)

// Verdicts in the order in which they are told.
var Verdicts = []Verdict{Lost, Duplicated, Phantom, Leaked, Oversold, Contradicted, Unburied}

// reasonRedisLost is the letter of an accept that Redis lost and nobody could bring back.
const reasonRedisLost = "redis-lost"

// finding is one thing that is wrong.
type finding struct {
	Verdict Verdict `json:"verdict"`
	Text    string  `json:"text"`

	user  string // whom it concerns, if anybody
	order string
}

// memory is all that one buyer remembers.
type memory struct {
	sale     uint8
	quantity uint8
	orders   []uuid.UUID // told by a 202 or a 409, each once
	numbers  []int64     // of those, 0 where only a 409 told
	soldOut  bool
	named    bool // was told already-ordered in answer to the own key
	open     int  // requests without an answer
	asked    int
}

// proof compares the history with the books.
type proof struct {
	books    *books
	sales    []string
	losses   bool // Redis lost data in this run
	buyers   map[uint32]*memory
	poisons  []poison
	findings []finding

	rowsOf    map[uuid.UUID][]*row
	lettersOf map[string][]letter // by order
	poisonOf  map[string]poison   // by entry, and by order

	promised, refusedLater, unknownWithRow int
}

// prove compares everything with everything.
func prove(facts []fact, poisons []poison, sales []string, b *books, losses bool) *proof {
	p := &proof{
		books: b, sales: sales, losses: losses, poisons: poisons, buyers: map[uint32]*memory{},
		rowsOf: map[uuid.UUID][]*row{}, lettersOf: map[string][]letter{}, poisonOf: map[string]poison{},
	}
	p.index()
	p.recall(facts)
	p.checkPromises()
	p.checkRows()
	p.checkAnswers()
	p.checkShelves()
	p.checkLetters()
	return p
}

func (p *proof) find(v Verdict, user, order, format string, args ...any) {
	p.findings = append(p.findings, finding{v, fmt.Sprintf(format, args...), user, order})
}

func (p *proof) index() {
	for i := range p.books.rows {
		r := &p.books.rows[i]
		p.rowsOf[r.ID] = append(p.rowsOf[r.ID], r)
	}
	for _, l := range p.books.letters {
		p.lettersOf[l.Order] = append(p.lettersOf[l.Order], l)
	}
	for _, one := range p.poisons {
		if one.entry != "" {
			p.poisonOf[one.entry] = one
		}
		if one.order != "" {
			p.poisonOf[one.order] = one
		}
	}
}

// recall puts together what each buyer was told.
func (p *proof) recall(facts []fact) {
	for _, f := range facts {
		m := p.buyers[f.buyer]
		if m == nil {
			m = &memory{sale: f.sale, quantity: f.quantity}
			p.buyers[f.buyer] = m
		}
		m.asked++
		switch f.told {
		case toldNothing:
			m.open++
		case toldSoldOut:
			m.soldOut = true
		case toldAccepted:
			p.promise(f, m)
		case toldNamed:
			m.named = m.named || f.keyed
			p.promise(f, m)
		}
	}
}

func (p *proof) promise(f fact, m *memory) {
	for i, known := range m.orders {
		if known != f.order {
			continue
		}
		switch {
		case m.numbers[i] == 0:
			m.numbers[i] = f.number
		case f.number != 0 && m.numbers[i] != f.number:
			p.find(Duplicated, userOf(f.buyer), f.order.String(), "order %s was told with the numbers %d and %d", f.order, m.numbers[i], f.number)
		}
		return
	}
	m.orders, m.numbers = append(m.orders, f.order), append(m.numbers, f.number)
}

// checkPromises holds each promised order against its row.
func (p *proof) checkPromises() {
	numbers := map[int64]uuid.UUID{}
	for buyer, m := range p.buyers {
		standing := 0
		for i, id := range m.orders {
			p.promised++
			if other, taken := numbers[m.numbers[i]]; taken && m.numbers[i] != 0 {
				p.find(Duplicated, userOf(buyer), id.String(), "orders %s and %s were told with one number, %d", other, id, m.numbers[i])
			}
			numbers[m.numbers[i]] = id
			if p.checkPromise(userOf(buyer), m, id, m.numbers[i]) {
				standing++
			}
		}
		if standing > 1 {
			p.find(Duplicated, userOf(buyer), m.orders[0].String(), "%s was told of %d orders, and none was taken back", userOf(buyer), standing)
		}
	}
}

// checkPromise reports whether the order stands, or should.
func (p *proof) checkPromise(user string, m *memory, id uuid.UUID, number int64) bool {
	rows := p.rowsOf[id]
	switch {
	case len(rows) == 0:
		p.find(Lost, user, id.String(), "%s was told of order %s, which has no row", user, id)
		return true
	case len(rows) > 1:
		p.find(Duplicated, user, id.String(), "order %s has %d rows", id, len(rows))
		return true
	}
	r := rows[0]
	if r.Status == "rejected" && p.explained(id.String()) {
		p.refusedLater++
		return false
	}
	switch {
	case !r.live():
		p.find(Lost, user, id.String(), "order %s of %s is %s %s", id, user, r.Status, r.Reason)
	case r.User != user || r.Sale != p.sales[m.sale] || r.Quantity != int(m.quantity) || number != 0 && (r.Number == nil || *r.Number != number):
		p.find(Lost, user, id.String(), "order %s of %s is another one than was told", id, user)
	}
	return true
}

// explained reports whether a letter says why an accepted order was rejected.
func (p *proof) explained(order string) bool {
	for _, l := range p.lettersOf[order] {
		if p.losses && l.Reason == reasonRedisLost {
			return true
		}
	}
	return false
}

// checkRows asks of each row who can have caused it.
func (p *proof) checkRows() {
	type place struct{ sale, user string }
	live := map[place]int{}
	for i := range p.books.rows {
		r := &p.books.rows[i]
		id := r.ID.String()
		if !r.live() {
			if _, poisoned := p.poisonOf[id]; !poisoned && !p.explained(id) {
				p.find(Unburied, r.User, id, "order %s of %s is %s %s, and nothing says why", id, r.User, r.Status, r.Reason)
			}
			continue
		}
		if live[place{r.Sale, r.User}]++; live[place{r.Sale, r.User}] == 2 {
			p.find(Duplicated, r.User, id, "%s has two live orders in sale %s", r.User, r.Sale)
		}
		if why := p.causeless(r); why != "" {
			p.find(Phantom, r.User, id, "order %s of %s: %s", id, r.User, why)
		}
	}
}

// causeless says why no request can have caused a live row, or "".
func (p *proof) causeless(r *row) string {
	if one, poisoned := p.poisonOf[r.ID.String()]; poisoned {
		return "it is a poison, " + one.sort
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(r.User, "buyer-"), 10, 32)
	m := p.buyers[uint32(n)]
	switch {
	case err != nil || m == nil:
		return "nobody of that name asked"
	case p.sales[m.sale] != r.Sale || int(m.quantity) != r.Quantity:
		return fmt.Sprintf("it is %d of %s, asked for were %d of %s", r.Quantity, r.Sale, m.quantity, p.sales[m.sale])
	}
	for _, known := range m.orders {
		if known == r.ID {
			return ""
		}
	}
	if m.open == 0 {
		return "each request was answered, and none with this order"
	}
	p.unknownWithRow++
	return ""
}

// checkAnswers looks for answers to one buyer that can't all be true.
func (p *proof) checkAnswers() {
	for buyer, m := range p.buyers {
		user := userOf(buyer)
		if m.soldOut && len(m.orders) > 0 {
			p.find(Contradicted, user, m.orders[0].String(), "%s has order %s and was told sold-out", user, m.orders[0])
		}
		// A rebuilt slot does not know the key any more; else the own key always gets the own 202.
		if m.named && !p.losses {
			p.find(Contradicted, user, m.orders[0].String(), "%s repeated a request and was told already-ordered", user)
		}
	}
}

// checkShelves holds stock, slots and orders together, sale by sale.
func (p *proof) checkShelves() {
	liveOf := map[string]map[string]*row{}
	units, gone := map[string]int64{}, map[string]bool{}
	for i := range p.books.rows {
		r := &p.books.rows[i]
		if !r.live() {
			gone[r.Sale] = true
			continue
		}
		if liveOf[r.Sale] == nil {
			liveOf[r.Sale] = map[string]*row{}
		}
		liveOf[r.Sale][r.User] = r
		units[r.Sale] += int64(r.Quantity)
	}
	for i := range p.books.shelves {
		b := &p.books.shelves[i]
		p.checkUnits(b, units[b.id], gone[b.id])
		p.checkSlots(b, liveOf[b.id])
	}
}

func (p *proof) checkUnits(b *shelf, live int64, gone bool) {
	if len(b.missing) > 0 {
		p.find(Leaked, "", "", "sale %s is not in Redis: %v", b.id, b.missing)
		return
	}
	if live > b.total || b.stock < 0 {
		p.find(Oversold, "", "", "sale %s: %d units in live orders and a stock of %d, of %d", b.id, live, b.stock, b.total)
	}
	switch drift := b.total - b.stock - live; {
	case drift > 0:
		p.find(Leaked, "", "", "sale %s: %d units are neither in stock (%d) nor in live orders (%d), of %d", b.id, drift, b.stock, live, b.total)
	case drift < 0:
		p.find(Oversold, "", "", "sale %s: %d units are in stock (%d) and in live orders (%d), of %d", b.id, -drift, b.stock, live, b.total)
	}
	if b.sold != live {
		p.find(Leaked, "", "", "sale %s counts %d sold, its live orders hold %d", b.id, b.sold, live)
	}
	if !gone && b.stock > 0 && p.saidSoldOut(b.id) { // nothing ever came back, so whoever asked for one unit was told wrong
		p.find(Contradicted, "", "", "sale %s said sold-out and has %d units left", b.id, b.stock)
	}
}

func (p *proof) saidSoldOut(sale string) bool {
	for _, m := range p.buyers {
		if m.soldOut && p.sales[m.sale] == sale {
			return true
		}
	}
	return false
}

func (p *proof) checkSlots(b *shelf, live map[string]*row) {
	for user, held := range b.slots {
		if r := live[user]; r == nil || r.ID.String() != held.order || r.Quantity != held.quantity {
			p.find(Leaked, user, held.order, "sale %s: the slot of %s names order %s (%d units), which is not a live order of that buyer", b.id, user, held.order, held.quantity)
		}
	}
	for user, r := range live {
		if _, held := b.slots[user]; !held {
			p.find(Leaked, user, r.ID.String(), "sale %s: order %s of %s has no slot in Redis", b.id, r.ID, user)
		}
	}
}

// checkLetters holds poisons and letters together.
func (p *proof) checkLetters() {
	letters := map[string]int{}
	for _, l := range p.books.letters {
		_, poisoned := p.poisonOf[l.Entry]
		if one := p.poisonOf[l.Order]; !poisoned && one.order != "" {
			if one.entry == "" { // its entry was Redis' own
				letters[l.Order]++
			}
			continue // else the entry was added twice: the first reply was lost, and the client asked again
		}
		letters[l.Entry]++
		if !poisoned && !(p.losses && l.Reason == reasonRedisLost) {
			p.find(Unburied, "", l.Order, "entry %s (order %s of sale %s) became a letter, %s: nobody poisoned it", l.Entry, l.Order, l.Sale, l.Reason)
		}
	}
	for _, one := range p.poisons {
		n := letters[one.entry]
		if one.entry == "" {
			n = letters[one.order]
		}
		if one.lettered && n == 0 && p.losses {
			continue // it may have gone with Redis' data
		}
		if want := map[bool]int{true: 1}[one.lettered]; n != want {
			p.find(Unburied, "", one.order, "poison %s (%s) has %d letters, want %d", one.entry, one.sort, n, want)
		}
	}
}

// counts tells how many findings there are of each verdict.
func (p *proof) counts() map[Verdict]int {
	counts := map[Verdict]int{}
	for _, f := range p.findings {
		counts[f.Verdict]++
	}
	return counts
}
