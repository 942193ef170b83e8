package recovery

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/retry"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

// placeTaker gets every person who waits once, those with the lowest tickets first.
type placeTaker interface {
	takePlace(ctx context.Context, s *pipeline.WaitlistEntry) error
}

// collectWaiting finds out who waits for a sale: everybody whom Postgres knows to wait, but for those whose order is in the
// stream, and those who hold another. Whoever joined without being noted was not told: he is forgotten, and his api tries
// again. Buyers are those of the events, and whether they hold a slot.
func (v *Verifier) collectWaiting(
	ctx context.Context, l lag, events []pipeline.Event, buyers map[string]bool, c *collected, people placeTaker,
) error {
	c.tickets = max(l.holds.Tickets, l.mark.Tickets)
	inStream := make(map[string]bool, len(events))
	for _, e := range events {
		inStream[e.OrderID] = true
	}
	return v.Store.EachWaitlistEntry(ctx, l.mark.SaleID, l.mark.Partition, func(s pipeline.WaitlistEntry) error {
		c.tickets = max(c.tickets, s.Ticket)
		if inStream[s.OrderID] || buyers[s.UserID] {
			return nil
		}
		c.waiting++
		return people.takePlace(ctx, &s)
	})
}

// placeStager writes those who wait into keys of their own, in pieces.
type placeStager struct {
	rdb               redis.UniversalClient
	waitlist, waiting string
	members           []redis.Z
	entries           []any
	staged            int
}

func (s *placeStager) takePlace(ctx context.Context, stay *pipeline.WaitlistEntry) error {
	s.members = append(s.members, redis.Z{Score: float64(stay.Ticket), Member: stay.UserID})
	s.entries = append(s.entries, stay.UserID, entryOf(stay).String())
	if len(s.members) < rebuildChunk {
		return nil
	}
	return s.flush(ctx)
}

func (s *placeStager) flush(ctx context.Context) error {
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
		return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not take the people who wait for a sale")
	}
	s.staged += len(s.members)
	s.members, s.entries = s.members[:0], s.entries[:0]
	return nil
}

// placeCounter looks on, for a dry run.
type placeCounter struct{}

func (placeCounter) takePlace(context.Context, *pipeline.WaitlistEntry) error { return nil }

// entryOf is the entry of a stay in Redis.
func entryOf(s *pipeline.WaitlistEntry) lua.WaitlistEntry {
	return lua.WaitlistEntry{
		OrderID: s.OrderID, Quantity: s.Quantity, Number: s.Number, JoinedMS: s.JoinedAt.UnixMilli(), Ticket: s.Ticket,
		KeyHash: s.KeyHash, PayloadHash: s.PayloadHash,
	}
}
