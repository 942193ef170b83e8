package buyers

// checkSales compares stock, slots and orders, sale by sale.
func (p *Proof) checkSales() {
	type sums struct {
		live  map[string]*Order // by user
		units int64
		gone  bool // an order has given its units back
	}
	of := map[string]*sums{}
	for _, sale := range p.stores.sales {
		of[sale.id] = &sums{live: map[string]*Order{}}
	}
	for i := range p.stores.Orders {
		r := &p.stores.Orders[i]
		switch s := of[r.Sale]; {
		case s == nil:
		case p.live(r):
			s.live[r.User] = r
			s.units += int64(r.Quantity)
		default:
			s.gone = true
		}
	}
	for i := range p.stores.sales {
		sale := &p.stores.sales[i]
		s := of[sale.id]
		p.checkUnits(sale, s.units, s.gone)
		if sale.slots != nil {
			p.checkSlots(sale, s.live)
		}
	}
}

func (p *Proof) checkUnits(s *saleState, live int64, gone bool) {
	w := subject{rule: ruleUnits}
	if len(s.missing) > 0 {
		p.find(Leaked, w, "sale %s is not in Redis: %v", s.id, s.missing)
		return
	}
	if p.terms.Stock > 0 && s.total != int64(p.terms.Stock) {
		p.find(Leaked, w, "sale %s has %d units in all, not %d", s.id, s.total, p.terms.Stock)
	}
	if live > s.total || s.stock < 0 {
		p.find(Oversold, w, "sale %s: %d units in live orders and a stock of %d, of %d", s.id, live, s.stock, s.total)
	}
	switch drift := s.total - s.stock - live; {
	case drift > 0:
		p.find(Leaked, w, "sale %s: %d units are neither in stock (%d) nor in live orders (%d), of %d", s.id, drift,
			s.stock, live, s.total)
	case drift < 0:
		p.find(Oversold, w, "sale %s: %d units are in stock (%d) and in live orders (%d), of %d", s.id, -drift, s.stock,
			live, s.total)
	}
	p.detail(ruleUnits, "%d paid + %d left = %d", live, s.stock, s.total)
	if s.slots != nil && s.sold != live {
		p.find(Leaked, subject{rule: ruleSlots}, "sale %s counts %d sold, its live orders have %d", s.id, s.sold, live)
	}
	// nothing ever came back, so sold-out was a wrong answer to a buyer of one unit
	if !gone && s.stock > 0 && p.saidSoldOut(s.id) {
		p.find(Contradicted, subject{rule: ruleNoLie}, "sale %s said sold-out and has %d units left", s.id, s.stock)
	}
}

func (p *Proof) saidSoldOut(sale string) bool {
	for _, m := range p.buyers {
		if p.lied(m) && m.sale == sale {
			return true
		}
	}
	return false
}

func (p *Proof) checkSlots(s *saleState, live map[string]*Order) {
	for user, one := range s.slots {
		if r := live[user]; r == nil || r.ID != one.order || r.Quantity != one.quantity {
			p.find(Leaked, subject{ruleSlots, user, one.order},
				"sale %s: the slot of %s names order %s (%d units), which is not a live order of that buyer",
				s.id, user, one.order, one.quantity)
		}
	}
	for user, r := range live {
		if _, ok := s.slots[user]; !ok {
			p.find(Leaked, subject{ruleSlots, user, r.ID}, "sale %s: order %s of %s has no slot in Redis", s.id, r.ID,
				user)
		}
	}
}

// checkLetters compares poisons and letters.
func (p *Proof) checkLetters() {
	letters, elsewhere := map[string]int{}, map[string]bool{}
	for _, l := range p.stores.letters {
		_, poisoned := p.poisonOf[l.Entry]
		if one := p.poisonOf[l.Order]; !poisoned && one.Order != "" {
			if one.Entry == "" { // its entry was Redis' own
				letters[l.Order]++
				continue
			}
			// The entry was added twice, because the first reply was lost and the client asked again; or a worker had
			// fetched it when Redis had to be verified, and submitted it again.
			elsewhere[l.Order] = true
			continue
		}
		letters[l.Entry]++
		if !poisoned && !(p.terms.Lossy && l.Reason == reasonRedisLost) {
			p.find(Unburied, subject{rule: ruleLetters, order: l.Order},
				"entry %s (order %s of sale %s) became a letter, %s: nobody poisoned it", l.Entry, l.Order, l.Sale, l.Reason)
		}
	}
	for _, one := range p.history.poisons {
		n, want := letters[one.Entry], 0
		if one.Entry == "" {
			n = letters[one.Order]
		}
		if one.Lettered {
			want = 1
		}
		if n == 0 && elsewhere[one.Order] {
			n = 1
		}
		if n == want || n == 0 && p.terms.Lossy { // it may have gone with Redis' data
			continue
		}
		p.find(Unburied, subject{rule: ruleLetters, order: one.Order}, "poison %s (%s) has %d letters, want %d",
			one.Entry, one.Sort, n, want)
	}
}
