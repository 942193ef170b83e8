package worker

import "time"

// seenFor is how long a delivery is remembered that is not seen any more: longer than the time between two looks.
const seenFor = time.Minute

// delivery is one delivery of an entry. Taking it over makes another.
type delivery struct {
	entryKey
	consumer string
	count    int64
}

// firstSeen measures how long deliveries have been pending, by this machine's monotonic clock. Redis' idle time is the
// difference of two readings of a clock: where that has jumped between them, an entry of a dead worker would remain
// young for as long as the clock was wrong by. It is not safe for concurrent use; what it keeps is bounded by what all
// workers have in flight.
type firstSeen map[delivery]sighting

type sighting struct{ first, last time.Time }

// age is for how long a delivery has been seen, and counts it as seen now.
func (f firstSeen) age(d delivery) time.Duration {
	now := time.Now()
	s, known := f[d]
	if !known {
		s.first = now
	}
	s.last = now
	f[d] = s
	return now.Sub(s.first)
}

// forget drops what is no longer pending.
func (f firstSeen) forget() {
	for d, s := range f {
		if time.Since(s.last) > seenFor {
			delete(f, d)
		}
	}
}
