package journal

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"sluice/pipeline"
)

const (
	// trimEvery is the time between two looks at what Postgres has.
	trimEvery = 5 * time.Second
	// trimAge is when a segment is ended though it is small, so that it can be deleted on a quiet day, too.
	trimAge = 10 * time.Second
	// trimChunk is how many orders Postgres is asked about at once: one look-up in an index for each.
	trimChunk = 1000
)

// OrderStore says which orders need no journal any more.
type OrderStore interface {
	// UnsettledOrders returns those of the orders that have neither a row in Postgres, in any status, nor a dead letter.
	UnsettledOrders(ctx context.Context, orders []pipeline.OrderKey) ([]pipeline.OrderKey, error)
}

// Trim deletes every segment whose orders all need no journal any more, and reports to Postgres which orders it should
// have by now. Errors: those of the store; nothing is deleted that may be needed.
func (j *Journal) Trim(ctx context.Context, store Store) error {
	return j.trim(ctx, store, j.opts.OverdueAfter)
}

// trim is Trim, for accepts that are overdue at that age.
func (j *Journal) trim(ctx context.Context, store Store, overdueAfter time.Duration) error {
	j.trimming.Lock()
	defer j.trimming.Unlock()
	r, err := j.newTrimRound(store, overdueAfter)
	if err != nil {
		return err
	}
	err = errors.Join(j.trimSegments(ctx, r), j.trimMemory(ctx, r))
	if err == nil { // else what is overdue is not known
		err = j.report(ctx, store, r.overdue)
	}
	return errors.Join(err, errors.Join(r.unread...), j.measure(), j.forgetAdopted(ctx, store))
}

// trimRound is one look at what Postgres has.
type trimRound struct {
	store      Store
	age        time.Duration // at which an accept is overdue
	candidates []candidate
	ownID      string
	overdue    map[string]*Overdue // by journal
	unread     []error             // files that could not be read
}

// candidate is a segment to which nothing is appended any more.
type candidate struct {
	home    *home
	segment *segment
}

func (j *Journal) newTrimRound(store Store, age time.Duration) (*trimRound, error) {
	if err := j.lock(); err != nil {
		return nil, err
	}
	defer j.mu.Unlock()
	if j.file != nil && time.Since(j.began) >= trimAge && j.current.size > int64(len(segmentHead)) {
		j.endSegment(nil)
	}
	r := &trimRound{store: store, age: age, ownID: j.id, overdue: map[string]*Overdue{}}
	ids := append(slices.Collect(maps.Keys(j.reported)), j.id) // the own one may be in memory only
	for _, h := range j.homes {
		ids = append(ids, h.id)
		for _, s := range h.segments {
			if s != j.current {
				r.candidates = append(r.candidates, candidate{h, s})
			}
		}
	}
	for _, id := range ids {
		r.overdue[id] = &Overdue{JournalID: id, Host: host()}
	}
	return r, nil
}

// trimSegments deletes what is settled. Errors: those of the store, which end it.
func (j *Journal) trimSegments(ctx context.Context, r *trimRound) error {
	for _, c := range r.candidates {
		p := j.progress[c.segment.path]
		if p == nil {
			p = &progress{}
			j.progress[c.segment.path] = p
		}
		// The age is that of the last accept, by the monotonic clock of this process: the wall clock may be off by an hour.
		// What a dead process left is old enough.
		report, old, enough := r.overdue[c.home.id], time.Since(c.segment.ended) >= r.age, 1
		if old {
			enough = max(1, overdueLimit-len(report.Orders))
		}
		err := p.advance(ctx, r.store, c.segment, enough)
		var failed storeError
		switch {
		case errors.As(err, &failed):
			return failed.error
		case err != nil:
			r.unread = append(r.unread, err)
		case p.settled():
			if err := j.dropSegment(c, p.corrupt); err != nil {
				return err
			}
			continue
		}
		if old {
			report.add(p.missing, max(0, c.segment.accepts-p.asked))
		}
	}
	return nil
}

func (j *Journal) dropSegment(c candidate, corrupt bool) error {
	if err := j.lock(); err != nil {
		return err
	}
	defer j.mu.Unlock()
	c.segment.corrupt = corrupt
	c.home.drop(func(s *segment) bool { return s == c.segment })
	delete(j.progress, c.segment.path)
	return nil
}

// measure says how large the journal is.
func (j *Journal) measure() error {
	segments, err := j.snapshot()
	if err != nil {
		return err
	}
	var bytes int64
	for _, s := range segments {
		bytes += s.size
	}
	j.opts.Metrics.bytes.Set(float64(bytes))
	return nil
}

// forgetAdopted gives up the journals of earlier processes that hold nothing any more.
func (j *Journal) forgetAdopted(ctx context.Context, store Store) error {
	j.presence.Lock()
	defer j.presence.Unlock()
	if err := j.lock(); err != nil {
		return err
	}
	var empty []*home
	var ids []string
	for _, h := range j.homes {
		if h != j.own && len(h.segments) == 0 {
			empty, ids = append(empty, h), append(ids, h.id)
		}
	}
	j.mu.Unlock()
	if len(empty) == 0 {
		return nil
	}
	if err := store.ForgetJournals(ctx, ids); err != nil {
		return err
	}
	if err := j.lock(); err != nil {
		return err
	}
	defer j.mu.Unlock()
	var errs []error
	for _, h := range empty {
		errs = append(errs, h.close())
	}
	j.homes = slices.DeleteFunc(j.homes, func(h *home) bool { return slices.Contains(empty, h) })
	for _, id := range ids {
		delete(j.reported, id)
	}
	return errors.Join(errs...)
}

// trimMemory forgets what is remembered in memory and settled by now.
func (j *Journal) trimMemory(ctx context.Context, r *trimRound) error {
	for {
		orders := j.memory.oldest(trimChunk)
		if len(orders) == 0 {
			return nil
		}
		old := j.memory.olderThan(r.age)
		missing, err := r.store.UnsettledOrders(ctx, orders)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			j.memory.forget(orders)
			continue
		}
		asked := orders[:min(old, len(orders))]
		overdue := slices.DeleteFunc(missing, func(o pipeline.OrderKey) bool { return !slices.Contains(asked, o) })
		r.overdue[r.ownID].add(overdue, old-len(asked))
		return nil
	}
}
