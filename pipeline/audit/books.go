package audit

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"sluice/pipeline"
)

// mostLater is how many entries of later accepts are kept before Redis' counters are read again, to drop them: 50 bytes
// each.
const mostLater = 10_000

// entry is what one of the stores has of an accept.
type entry struct {
	hash      fingerprint
	sequence  int64
	quantity  int32
	partition int16
	kind      kind
}

// kind is what an entry is.
type kind uint8

const (
	slotEntry    kind = iota // in Redis
	liveEntry                // a live order in Postgres
	eventEntry               // in the stream, without a row
	releaseEntry             // not applied: the slot is still there
)

// books add up one sale's numbers, up to the accepts that Redis had counted when the look began.
type books struct {
	before, latest PartitionCounters // when the look began, and as read last
	recount        func(context.Context) (PartitionCounters, error)
	compare        comparison
	units          int64 // live in Postgres
	inFlight       int64 // in the stream, without a row
	releasing      int64 // released in Postgres, and the slot is still there
	// later are entries of accepts that Redis had not counted when the look began, nor when its counters were read last:
	// close decides whether they were accepted during the look, or lost by Redis.
	later     []entry
	laterRoom int
	events    map[uuid.UUID]entry // in the stream, by order; without those that were accepted during the look
}

func newBooks(
	before PartitionCounters, compare comparison, recount func(context.Context) (PartitionCounters, error),
) *books {
	return &books{
		before: before, latest: before, recount: recount, compare: compare, laterRoom: mostLater,
		events: map[uuid.UUID]entry{},
	}
}

// isLater reports whether an accept was counted by Redis only after the look began.
func (b *books) isLater(e *entry) bool {
	was, ok := b.before[pipeline.Partition(e.partition)]
	return ok && e.sequence > was.Accepted
}

// isMeanwhile reports whether an accept was counted during the look, as far as is known yet. It is not part of the
// report. One later than even the last count was lost by Redis, or never counted by it.
func (b *books) isMeanwhile(e *entry) bool {
	return b.isLater(e) && e.sequence <= b.latest[pipeline.Partition(e.partition)].Accepted
}

// add counts an entry, or keeps it for close.
func (b *books) add(ctx context.Context, e entry) error {
	if !b.isLater(&e) {
		b.count(&e)
		return nil
	}
	if e.kind == slotEntry {
		b.compare.slot(e.hash, true)
	}
	if b.isMeanwhile(&e) {
		return nil
	}
	if b.later = append(b.later, e); len(b.later) < b.laterRoom {
		return nil
	}
	err := b.refresh(ctx)
	b.laterRoom = max(mostLater, 2*len(b.later)) // what is left is wrong, and counted in the end
	return err
}

// refresh reads the counters again, and drops what was accepted up to now.
func (b *books) refresh(ctx context.Context) (err error) {
	if b.latest, err = b.recount(ctx); err != nil {
		return err
	}
	b.later = slices.DeleteFunc(b.later, func(e entry) bool { return b.isMeanwhile(&e) })
	return nil
}

func (b *books) count(e *entry) {
	switch e.kind {
	case slotEntry:
		b.compare.slot(e.hash, false)
	case liveEntry:
		b.units += int64(e.quantity)
		b.compare.order(e.hash)
	case eventEntry:
		b.inFlight += int64(e.quantity)
		b.compare.order(e.hash)
	case releaseEntry:
		b.releasing += int64(e.quantity)
		b.compare.release(e.hash)
	}
}

// close counts the events that have no row, and what is later than even the last count.
func (b *books) close(ctx context.Context) error {
	for _, e := range b.events {
		if err := b.add(ctx, e); err != nil {
			return err
		}
	}
	if err := b.refresh(ctx); err != nil {
		return err
	}
	for i := range b.later {
		b.count(&b.later[i])
	}
	return nil
}
