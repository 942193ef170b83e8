package demo

import (
	"context"
	"fmt"

	"sluice/internal/buyers"
	"sluice/internal/table"
	"sluice/pipeline"
)

// queue says how many events the stream has, and how many of them are pending at a worker.
func (s *session) queue(ctx context.Context) (length, pending int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	pipe := s.redis.Pipeline()
	events := pipe.XLen(ctx, s.stream())
	fetched := pipe.XPending(ctx, s.stream(), pipeline.Group)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, 0, err
	}
	return events.Val(), fetched.Val().Count, nil
}

// stream is where the sale's events are: it is placed on one partition.
func (s *session) stream() string { return pipeline.DefaultKeys.Orders(s.sale.Partitions[0]) }

// rushProgress is one look at the rush.
func (s *session) rushProgress(ctx context.Context) string {
	t := s.history.Tally()
	all := len(s.plan.early) + len(s.plan.rush)
	length, _, err := s.queue(ctx)
	queued := number(int(length))
	if err != nil {
		queued = "?"
	}
	refused := t.Outcomes[buyers.SoldOut] + t.Outcomes[buyers.NotOpen] + t.Outcomes[buyers.Closed]
	return fmt.Sprintf("%s %s of %s requests · %s accepted · %s repeats of those · %s refused · %s in the stream",
		bar(t.Requests,
			all), number(t.Requests), number(all), number(t.Orders),
		number(t.Replays+t.Outcomes[buyers.AlreadyOrdered]), number(refused), queued)
}

func (s *session) backlog(ctx context.Context) string {
	length, pending, err := s.queue(ctx)
	if err != nil {
		return "?"
	}
	return fmt.Sprintf("%s in the stream, %s of them in a worker's hands", number(int(length)), number(int(pending)))
}

// times says how often an answer was given so far.
func (s *session) times(o buyers.Outcome) string {
	return fmt.Sprintf("%s times %s", number(s.history.Tally().Outcomes[o]), o.Code())
}

func number(n int) string { return table.Number(int64(n)) }

func seconds(ms int64) string { return fmt.Sprintf("%.1f s", float64(ms)/1000) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
