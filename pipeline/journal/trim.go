package journal

import (
	"context"
	"errors"
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
	// SettledOrders counts those of the orders that have a row in Postgres, in any status, or a dead letter. An order that
	// is named twice counts twice.
	SettledOrders(ctx context.Context, orders []pipeline.OrderKey) (int, error)
}

// Trim deletes every segment whose orders all need no journal any more. Errors: those of the store; nothing is deleted
// that may be needed.
func (j *Journal) Trim(ctx context.Context, store Store) error {
	j.trimming.Lock()
	defer j.trimming.Unlock()
	if err := j.lock(); err != nil {
		return err
	}
	if j.file != nil && time.Since(j.began) >= trimAge && j.current.size > int64(len(segmentHead)) {
		j.endSegment(nil)
	}
	type candidate struct {
		home    *home
		segment *segment
	}
	var candidates []candidate
	for _, h := range j.homes {
		for _, s := range h.segments {
			if s != j.current {
				candidates = append(candidates, candidate{h, s})
			}
		}
	}
	j.mu.Unlock()
	var errs []error
	for _, c := range candidates {
		settled, corrupt, err := j.isSettled(ctx, store, c.segment)
		errs = append(errs, err)
		if settled {
			if err := j.lock(); err != nil {
				return errors.Join(append(errs, err)...)
			}
			c.segment.corrupt = corrupt
			c.home.drop(func(s *segment) bool { return s == c.segment })
			j.mu.Unlock()
			delete(j.settled, c.segment.path)
		}
	}
	errs = append(errs, j.trimMemory(ctx, store))
	var bytes int64
	segments, err := j.snapshot()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, s := range segments {
		bytes += s.size
	}
	j.opts.Metrics.bytes.Set(float64(bytes))
	return errors.Join(append(errs, j.forgetAdopted(ctx, store))...)
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
	return errors.Join(errs...)
}

// errUnsettled ends the reading of a segment that is still needed.
var errUnsettled = pipeline.Errorf(pipeline.KindConflict, "an order is not in Postgres yet")

// isSettled reports whether every order in a segment is settled, and whether a part of it can't be read. It goes on
// where the look before this one ended: what is settled remains so.
func (j *Journal) isSettled(ctx context.Context, store OrderStore, s *segment) (settled, corrupt bool, err error) {
	var chunk []pipeline.OrderKey
	ask := func() error {
		n, err := store.SettledOrders(ctx, chunk)
		if err == nil && n < len(chunk) {
			err = errUnsettled
		}
		if err == nil {
			j.settled[s.path] += len(chunk)
			chunk = chunk[:0]
		}
		return err
	}
	skip := j.settled[s.path]
	found, err := readSegment(s, anyPartition, func(_ pipeline.SalePartition, accepts []pipeline.Accept) error {
		for i := range accepts {
			if skip > 0 {
				skip--
				continue
			}
			chunk = append(chunk, pipeline.OrderKey{SaleID: accepts[i].SaleID, OrderID: accepts[i].OrderID})
		}
		if len(chunk) >= trimChunk {
			return ask()
		}
		return nil
	})
	if err == nil && len(chunk) > 0 {
		err = ask()
	}
	if err == errUnsettled { //nolint:errorlint // it is returned as it is
		return false, false, nil
	}
	return err == nil, found.Corrupt > 0, err
}

// trimMemory forgets what is remembered in memory and settled by now.
func (j *Journal) trimMemory(ctx context.Context, store OrderStore) error {
	for {
		orders := j.memory.oldest(trimChunk)
		if len(orders) == 0 {
			return nil
		}
		settled, err := store.SettledOrders(ctx, orders)
		if err != nil || settled < len(orders) {
			return err
		}
		j.memory.forget(orders)
	}
}
