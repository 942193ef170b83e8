package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/table"
	"sluice/pipeline"
	"sluice/pipeline/retry"
)

type pendingCmd struct{}

// pendingView is what is pending on one partition. It comes from the summary that Redis keeps, which costs microseconds
// however long the list is; listing the entries themselves would slow down the sale.
type pendingView struct {
	Partition   string         `json:"partition"`
	Pending     int64          `json:"pending"`
	OldestID    string         `json:"oldest_id"`
	OldestAgeMS int64          `json:"oldest_age_ms"` // since the accept
	Consumers   []consumerView `json:"consumers"`
}

type consumerView struct {
	Name    string `json:"name"`
	Pending int64  `json:"pending"`
	Alive   bool   `json:"alive"` // it has a heartbeat
}

// Run lists what is pending.
func (c *pendingCmd) Run(a *app) error {
	return a.withRedis(func(s *stores) error {
		views, err := s.pending(a.ctx)
		if err != nil {
			return err
		}
		t := table.New("PARTITION", "WORKER", ">PENDING", "STATE", "OLDEST OF THE PARTITION")
		for _, v := range views {
			for _, c := range v.Consumers {
				t.Row(v.Partition, c.Name, c.Pending, aliveText(c.Alive), age(time.Duration(v.OldestAgeMS)*time.Millisecond))
			}
		}
		return printList(a, views, t, "Nothing is pending.")
	})
}

func aliveText(alive bool) string {
	if alive {
		return "alive"
	}
	return "DEAD"
}

// pending lists the partitions where something is.
func (s *stores) pending(ctx context.Context) ([]pendingView, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	pipe := s.redis.Pipeline()
	summaries := make([]*redis.XPendingCmd, s.cfg.Partitions)
	for i, p := range s.partitions() {
		summaries[i] = pipe.XPending(ctx, s.keys.Orders(p), pipeline.Group)
	}
	if _, err := retry.Exec(ctx, pipe); err != nil {
		return nil, unavailable(err, "Redis did not list what is pending")
	}
	views := []pendingView{}
	for i, p := range s.partitions() {
		summary, err := summaries[i].Result()
		if err != nil && !noGroup(err) {
			return nil, unavailable(err, "Redis did not list what is pending")
		}
		if err != nil || summary.Count == 0 {
			continue
		}
		view, err := s.viewPending(ctx, p, summary, now)
		if err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	return views, nil
}

func (s *stores) viewPending(
	ctx context.Context, p pipeline.Partition, summary *redis.XPending, now time.Time,
) (pendingView, error) {
	v := pendingView{
		Partition: p.String(), Pending: summary.Count, OldestID: summary.Lower,
		OldestAgeMS: max(0, now.Sub(entryTime(summary.Lower)).Milliseconds()),
	}
	for name, pending := range summary.Consumers {
		beats, err := s.redis.Exists(ctx, s.keys.Worker(p, name)).Result()
		if err != nil {
			return v, unavailable(err, "Redis did not return the heartbeats")
		}
		v.Consumers = append(v.Consumers, consumerView{Name: name, Pending: pending, Alive: beats == 1})
	}
	slices.SortFunc(v.Consumers, func(a, b consumerView) int { return strings.Compare(a.Name, b.Name) })
	return v, nil
}

// entryTime is when an event was accepted, by its entry's id.
func entryTime(id string) time.Time {
	ms, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
