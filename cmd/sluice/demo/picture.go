package demo

import (
	"context"
	"fmt"

	"sluice/internal/table"
	"sluice/pipeline"
)

// queue tells how many events the stream holds, and how many of them are in somebody's hands.
func (s *show) queue(ctx context.Context) (length, pending int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	pipe := s.redis.Pipeline()
	events := pipe.XLen(ctx, s.stream())
	held := pipe.XPending(ctx, s.stream(), pipeline.Group)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, 0, err
	}
	return events.Val(), held.Val().Count, nil
}

// unitsLeft is what Redis still has for sale.
func (s *show) unitsLeft(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.redis.HGet(ctx, pipeline.DefaultKeys.Sale(s.sale.Partitions[0], saleID), "stock").Int()
}

// stream is where the sale's events are: it is placed on one partition.
func (s *show) stream() string { return pipeline.DefaultKeys.Orders(s.sale.Partitions[0]) }

// picture is one look at the rush.
func (s *show) picture(ctx context.Context) func() string {
	return func() string {
		t := s.history.tally()
		all := len(s.plan.early) + len(s.plan.rush)
		length, _, err := s.queue(ctx)
		queued := number(int(length))
		if err != nil {
			queued = "?"
		}
		return fmt.Sprintf("%s %s of %s requests · %s accepted · %s repeats of those · %s refused · %s in the stream",
			bar(t.asked, all), number(t.asked), number(all), number(t.accepted), number(t.replays+t.alreadyOrdered), number(t.refused), queued)
	}
}

func (s *show) backlog(ctx context.Context) string {
	length, pending, err := s.queue(ctx)
	if err != nil {
		return "?"
	}
	return fmt.Sprintf("%s in the stream, %s of them in a worker's hands", number(int(length)), number(int(pending)))
}

// codes says how often an answer was given so far.
func (s *show) codes(code string) string {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return fmt.Sprintf("%s times %s", number(s.history.codes[code]), code)
}

func number(n int) string { return table.Number(int64(n)) }
