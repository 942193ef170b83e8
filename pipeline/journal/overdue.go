package journal

import (
	"context"
	"errors"
	"slices"
	"time"

	"sluice/pipeline"
)

const (
	// overdueAfter is when an accept that Postgres does not have is reported to it: longer than the events of a dead
	// worker take, so that nothing is written on a usual day.
	overdueAfter = 30 * time.Second
	// overdueLimit bounds the orders that a journal lists in a report, which is written again every few seconds, and the
	// questions about them. Workers persist in order, so what was lost is among the oldest once a backlog is gone.
	overdueLimit = 1000
)

// Overdue is what a journal reports to Postgres: the accepts that it should have by now, and does not. Most of them are
// on their way; an audit finds out which are in no store any more.
type Overdue struct {
	JournalID string
	Host      string              // for people
	Orders    []pipeline.OrderKey // oldest first, at most 1,000
	Unlisted  int64               // more of them, which Postgres may have by now
}

// add adds the orders of a segment that are not settled, as far as there is room.
func (o *Overdue) add(missing []pipeline.OrderKey, notAsked int) {
	n := min(overdueLimit-len(o.Orders), len(missing))
	o.Orders = append(o.Orders, missing[:n]...)
	o.Unlisted += int64(len(missing) - n + notAsked)
}

func (o *Overdue) total() int { return len(o.Orders) + int(o.Unlisted) }

// progress is what is known of the orders of a segment to which nothing is appended any more. What is settled remains
// so, and is not asked about again.
type progress struct {
	asked   int                 // accepts from its start that Postgres was asked about
	missing []pipeline.OrderKey // those of them that it did not have
	whole   bool                // it was asked about all of them
	corrupt bool                // a part of it can't be read
}

func (p *progress) settled() bool { return p.whole && len(p.missing) == 0 }

// errEnough ends the reading of a segment of which enough is known.
var errEnough = errors.New("enough orders are not in Postgres")

// storeError is an error of Postgres, and not of a file.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// advance asks Postgres about the orders of a segment, until so many are known that it does not have. Errors:
// storeError, and those of the file.
func (p *progress) advance(ctx context.Context, store OrderStore, s *segment, enough int) error {
	var still []pipeline.OrderKey
	for chunk := range slices.Chunk(p.missing, trimChunk) {
		missing, err := store.UnsettledOrders(ctx, chunk)
		if err != nil {
			return storeError{err}
		}
		still = append(still, missing...)
	}
	if p.missing = still; p.whole || len(still) >= enough {
		return nil
	}
	err := p.read(ctx, store, s, enough)
	if err == errEnough { //nolint:errorlint // it is returned as it is
		return nil
	}
	return err
}

// read asks about the orders that were not asked about before.
func (p *progress) read(ctx context.Context, store OrderStore, s *segment, enough int) error {
	var chunk []pipeline.OrderKey
	ask := func() error {
		missing, err := store.UnsettledOrders(ctx, chunk)
		if err != nil {
			return storeError{err}
		}
		p.asked += len(chunk)
		p.missing = append(p.missing, missing...)
		chunk = chunk[:0]
		if len(p.missing) >= enough {
			return errEnough
		}
		return nil
	}
	skip := p.asked
	found, err := readSegment(s, anyPartition, func(_ pipeline.SalePartition, accepts []pipeline.Accept) error {
		for i := range accepts {
			if skip > 0 {
				skip--
				continue
			}
			chunk = append(chunk, keyOf(&accepts[i]))
		}
		if len(chunk) >= trimChunk {
			return ask()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(chunk) > 0 {
		err = ask()
	}
	p.whole, p.corrupt = len(chunk) == 0, found.Corrupt > 0
	return err
}

func keyOf(a *pipeline.Accept) pipeline.OrderKey {
	return pipeline.OrderKey{SaleID: a.SaleID, OrderID: a.OrderID}
}

// report tells Postgres what is overdue, and withdraws what was reported before. Where nothing is and was, it asks for
// nothing.
func (j *Journal) report(ctx context.Context, store Store, overdue map[string]*Overdue) error {
	var errs []error
	all := 0
	for id, o := range overdue {
		all += o.total()
		if o.total() == 0 && !j.reported[id] {
			continue
		}
		j.reported[id] = true // also if the answer is lost
		err := store.ReportOverdue(ctx, *o)
		if err == nil && o.total() == 0 {
			delete(j.reported, id)
		}
		errs = append(errs, err)
	}
	j.opts.Metrics.overdue.Set(float64(all))
	return errors.Join(errs...)
}
