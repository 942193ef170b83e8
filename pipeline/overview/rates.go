package overview

import "time"

// rates are taken between two looks that are far enough from each other.
type rates struct {
	at               time.Time
	accepted, stored float64 // so far
	sales            int
	perSecond        [2]float64
	known            bool
}

// note takes what a look has counted, and returns orders per second: accepted, and stored. What is accepted and not in
// the streams any more is stored: events are deleted once they are settled.
func (r *rates) note(g *Glance) (accepted, stored float64) {
	var count, waiting float64
	for i := range g.Sales {
		count += float64(g.Sales[i].Accepted)
	}
	for i := range g.Streams {
		waiting += float64(g.Streams[i].Length)
	}
	passed := g.At.Sub(r.at)
	if passed >= rateOver {
		// A sale that came or went is no rate.
		r.known = !r.at.IsZero() && r.sales == len(g.Sales) && count >= r.accepted && passed < time.Minute
		if r.known {
			r.perSecond = [2]float64{
				(count - r.accepted) / passed.Seconds(), max(0, (count-waiting-r.stored)/passed.Seconds()),
			}
		}
		r.at, r.accepted, r.stored, r.sales = g.At, count, count-waiting, len(g.Sales)
	}
	if !r.known {
		return -1, -1
	}
	return r.perSecond[0], r.perSecond[1]
}
