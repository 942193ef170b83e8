package audit

const (
	bucketBits = 16
	// buckets is into how many parts an audit divides a sale's accepts, by their fingerprints: 1.5 MiB whatever the sale.
	// Where an order is wrong, the others of its bucket are looked at one by one too, 150 of ten million.
	buckets = 1 << bucketBits
	// mostHeld is how many slots an audit looks at one by one at a time, some 50 bytes each. Where more are in buckets
	// that differ, the sale is read several times.
	mostHeld = 1 << 20
)

func (f fingerprint) bucket() int { return int(f.hi >> (64 - bucketBits)) }

// comparison compares the slots in Redis with the orders that should have one.
type comparison interface {
	// slot adds a slot. One whose accept Redis had not counted when the look began is later: it may belong to an order
	// that was counted, but nothing is missing where it does not.
	slot(f fingerprint, later bool)
	// order adds an order that must have a slot.
	order(f fingerprint)
	// release adds an order that has a slot until its release is applied; it is called where the slot is there.
	release(f fingerprint)
}

// survey compares sums: where the slots of a bucket are exactly the bucket's orders, the sum of the ones minus that of
// the others is zero. What was read twice (see redisstore.EachSlot), or owes two releases, only makes a bucket differ,
// and then a scrutiny decides. So a bucket that does not differ is right.
type survey struct {
	sums  [buckets]fingerprint
	slots [buckets]int64
}

func (s *survey) slot(f fingerprint, later bool) {
	if later {
		return
	}
	b := f.bucket()
	s.sums[b] = s.sums[b].plus(f)
	s.slots[b]++
}

func (s *survey) order(f fingerprint) {
	b := f.bucket()
	s.sums[b] = s.sums[b].minus(f)
}

func (s *survey) release(f fingerprint) { s.order(f) }

func (s *survey) differs(bucket int) bool { return s.sums[bucket] != fingerprint{} }

// agreed counts the slots of the buckets that agree; all counts those of every bucket.
func (s *survey) agreed() (agreed, all int64) {
	for b, n := range s.slots {
		all += n
		if !s.differs(b) {
			agreed += n
		}
	}
	return agreed, all
}

// scrutinies divides the buckets that differ, so that each scrutiny has at most so many slots to hold.
func (s *survey) scrutinies(most int64) []*scrutiny {
	var all []*scrutiny
	var slots int64
	for b := range s.sums {
		if !s.differs(b) {
			continue
		}
		if slots += s.slots[b]; len(all) == 0 || slots > most {
			all, slots = append(all, &scrutiny{held: map[fingerprint]holding{}}), s.slots[b]
		}
		all[len(all)-1].focus[b] = true
	}
	return all
}

// holding is what is known of a slot that is looked at by itself.
type holding uint8

const (
	counted holding = 1 << iota // Redis had counted its accept when the look began, or never did
	matched                     // it has its order
)

// scrutiny compares the slots of some buckets one by one. All slots come before the orders.
type scrutiny struct {
	focus [buckets]bool
	held  map[fingerprint]holding
	lost  int64 // orders without a slot
}

func (s *scrutiny) slot(f fingerprint, later bool) {
	switch {
	case !s.focus[f.bucket()]:
	case later:
		s.held[f] |= 0
	default:
		s.held[f] |= counted
	}
}

func (s *scrutiny) order(f fingerprint) {
	if !s.focus[f.bucket()] {
		return
	}
	if is, ok := s.held[f]; ok {
		s.held[f] = is | matched
	} else {
		s.lost++
	}
}

func (s *scrutiny) release(f fingerprint) {
	if is, ok := s.held[f]; ok {
		s.held[f] = is | matched
	}
}

// result counts the slots, and returns the fingerprints of those without an order.
func (s *scrutiny) result() (slots int64, strays []fingerprint) {
	for f, is := range s.held {
		if is&counted == 0 {
			continue
		}
		slots++
		if is&matched == 0 {
			strays = append(strays, f)
		}
	}
	return slots, strays
}
