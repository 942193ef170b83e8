package admission

import "time"

const (
	// rushLimit is how long a rush may last: the opening of a sale brings most of its buyers within a moment.
	rushLimit = 500 * time.Millisecond
	// standingWait is how long requests wait in a queue that stands: some batches, so that each is full.
	standingWait = 100 * time.Millisecond
	// smoothing is how many batches an average looks back on: a single slow one says nothing of the next.
	smoothing = 4
)

// load tells a rush from an overload. A rush ends, so the requests that come with it wait, as many as the queue has
// room for. In an overload waiting is of no use: as many requests are refused in the end, and all others are late by
// the length of the queue. A queue that stands is therefore kept short, and requests beyond that are refused at once.
// That a standing queue is the sign, and not a long one, is from Nichols and Jacobson, "Controlling Queue Delay" (ACM
// Queue 10(5), 2012).
type load struct {
	standing time.Time     // since when more waited than the next batch takes; zero: all fitted into it
	batch    time.Duration // how long a batch takes, smoothed
}

// left says whether a batch was taken and left more behind than the next one takes.
func (l *load) left(behind bool) {
	switch {
	case !behind:
		l.standing = time.Time{}
	case l.standing.IsZero():
		l.standing = time.Now()
	}
}

// ran says how long a batch took.
func (l *load) ran(took time.Duration) { l.batch += (took - l.batch) / smoothing }

// sheds reports whether a request that comes now is to be refused, because it would wait for too long in a queue that
// stands. The next batch always has room.
func (l *load) sheds(waiting, batchLimit int) bool {
	if l.standing.IsZero() || waiting < batchLimit || time.Since(l.standing) < rushLimit {
		return false
	}
	return time.Duration(waiting/batchLimit+1)*l.batch > standingWait
}
