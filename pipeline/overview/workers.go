package overview

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// Worker is one worker over all partitions.
type Worker struct {
	Name    string
	Alive   bool      // it has a heartbeat
	Started time.Time // zero for a dead one
	Pending int64     // orders delivered to it and not acknowledged
	Idle    time.Duration
}

func noteConsumer(byName map[string]*Worker, c redis.XInfoConsumer) {
	w := byName[c.Name]
	if w == nil {
		w = &Worker{Name: c.Name, Idle: c.Idle}
		byName[c.Name] = w
	}
	w.Pending += c.Pending
	w.Idle = min(w.Idle, c.Idle)
}

// readHeartbeats finds out which workers are alive. Each has a heartbeat on every partition, so the first one has them
// all.
func (r *Reader) readHeartbeats(ctx context.Context, g *Glance, byName map[string]*Worker) error {
	pipe := r.Redis.Pipeline()
	beats := map[string]*redis.StringCmd{}
	for name := range byName {
		beats[name] = pipe.Get(ctx, r.Keys.Worker(0, name))
	}
	if len(beats) > 0 {
		if _, err := retry.Exec(ctx, pipe); err != nil {
			return unavailable(err)
		}
	}
	for name, w := range byName {
		beat, err := beats[name].Result()
		switch {
		case err == nil:
			w.Alive = true
			if started, err := time.Parse(time.RFC3339Nano, beat); err == nil {
				w.Started = started.UTC()
			}
		case err != redis.Nil: //nolint:errorlint // go-redis returns it as it is
			return unavailable(err)
		}
		g.Workers = append(g.Workers, *w)
	}
	slices.SortFunc(g.Workers, func(a, b Worker) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// Alive counts the workers that are.
func (g *Glance) Alive() int {
	alive := 0
	for i := range g.Workers {
		if g.Workers[i].Alive {
			alive++
		}
	}
	return alive
}

// Orphaned counts the orders that are pending with dead workers.
func (g *Glance) Orphaned() int64 {
	var orders int64
	for i := range g.Workers {
		if !g.Workers[i].Alive {
			orders += g.Workers[i].Pending
		}
	}
	return orders
}

// Untrusted are the partitions on which nobody is admitted.
func (g *Glance) Untrusted() []pipeline.Partition {
	var closed []pipeline.Partition
	for p, trusted := range g.Trusted {
		if !trusted {
			closed = append(closed, pipeline.Partition(p))
		}
	}
	return closed
}
