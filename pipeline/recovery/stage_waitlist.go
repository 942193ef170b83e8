package recovery

import (
	"context"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// entryTaker receives every entry of a waitlist once, those with the lowest tickets first.
type entryTaker interface {
	takeEntry(ctx context.Context, e *pipeline.WaitlistEntry) error
}

// collectWaitlist finds out who waits for a sale: every buyer with an entry in Postgres, except those whose order is in
// the stream and those who have another one. A buyer who joined in Redis without a row in Postgres has had no answer:
// that entry is dropped, and the buyer's api tries again. buyers are those of the events, and whether they have a slot.
func (v *Verifier) collectWaitlist(
	ctx context.Context, l loss, events []pipeline.Event, buyers map[string]bool, c *collected, waitlist entryTaker,
) error {
	c.tickets = max(l.state.Tickets, l.watermark.Tickets)
	inStream := make(map[string]bool, len(events))
	for _, e := range events {
		inStream[e.OrderID] = true
	}
	return v.Store.EachWaitlistEntry(ctx, l.watermark.SaleID, l.watermark.Partition, func(e pipeline.WaitlistEntry) error {
		c.tickets = max(c.tickets, e.Ticket)
		if inStream[e.OrderID] || buyers[e.UserID] {
			return nil
		}
		c.waiting++
		return waitlist.takeEntry(ctx, &e)
	})
}

// waitlistStager writes the entries of a waitlist into keys of their own, in chunks.
type waitlistStager struct {
	rdb               redis.UniversalClient
	waitlist, waiting string
	members           []redis.Z
	entries           []any
	staged            int
}

func (s *waitlistStager) takeEntry(ctx context.Context, e *pipeline.WaitlistEntry) error {
	s.members = append(s.members, redis.Z{Score: float64(e.Ticket), Member: e.UserID})
	s.entries = append(s.entries, e.UserID, entryInRedis(e).String())
	if len(s.members) < rebuildChunk {
		return nil
	}
	return s.flush(ctx)
}

func (s *waitlistStager) flush(ctx context.Context) error {
	if len(s.members) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pipe := s.rdb.Pipeline()
	pipe.ZAdd(ctx, s.waitlist, s.members...)
	pipe.HSet(ctx, s.waiting, s.entries...)
	pipe.PExpire(ctx, s.waitlist, stagedTTL)
	pipe.PExpire(ctx, s.waiting, stagedTTL)
	if _, err := pipe.Exec(ctx); err != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not take the waitlist of a sale")
	}
	s.staged += len(s.members)
	s.members, s.entries = s.members[:0], s.entries[:0]
	return nil
}

// entryCounter stages nothing: collectWaitlist counts, for a dry run.
type entryCounter struct{}

func (entryCounter) takeEntry(context.Context, *pipeline.WaitlistEntry) error { return nil }

// entryInRedis returns an entry as Redis stores it.
func entryInRedis(e *pipeline.WaitlistEntry) lua.WaitlistEntry {
	return lua.WaitlistEntry{
		OrderID: e.OrderID, Quantity: e.Quantity, Number: e.Number, JoinedMS: e.JoinedAt.UnixMilli(), Ticket: e.Ticket,
		KeyHash: e.KeyHash, PayloadHash: e.PayloadHash,
	}
}
