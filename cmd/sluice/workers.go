package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
)

type workersCmd struct{}

// workerView is one worker over all partitions.
type workerView struct {
	Name       string  `json:"name"`
	Alive      bool    `json:"alive"`      // it has a heartbeat
	StartedAt  *string `json:"started_at"` // null for a dead one
	Pending    int64   `json:"pending"`    // orders delivered to it and not acknowledged
	Partitions int     `json:"partitions"` // from which orders were delivered to it
	IdleMS     *int64  `json:"idle_ms"`    // since the last delivery; null where there was none

	started time.Time
}

// Run lists the workers.
func (c *workersCmd) Run(a *app) error {
	return a.withRedis(func(s *stores) error {
		views, err := s.workers(a.ctx)
		if err != nil {
			return err
		}
		err = printList(a, views, workerTable(views),
			"No worker has joined yet; start one: orders wait in the stream until then.")
		if !a.json {
			adviseOnDead(a, views)
		}
		return err
	})
}

func workerTable(views []workerView) *table.Table {
	t := table.New("WORKER", "STATE", ">PENDING", ">PARTITIONS", "STARTED", "IDLE")
	for _, v := range views {
		started, idle := "?", "had no order yet"
		if v.StartedAt != nil {
			started = shortTime(v.started)
		}
		if v.IdleMS != nil {
			idle = age(time.Duration(*v.IdleMS) * time.Millisecond)
		}
		t.Row(v.Name, aliveText(v.Alive), v.Pending, v.Partitions, started, idle)
	}
	return t
}

func adviseOnDead(a *app, views []workerView) {
	var dead, alive int
	var orders int64 // of dead workers
	for _, v := range views {
		if v.Alive {
			alive++
		} else {
			dead++
			orders += v.Pending
		}
	}
	switch {
	case orders > 0 && alive > 0:
		sayf(a.out, "%s orders are pending with dead workers; the others take them over within seconds.",
			table.Number(orders))
	case orders > 0:
		sayf(a.out, "%s orders are pending with dead workers, and no worker is alive to take them over: start a worker.",
			table.Number(orders))
	case dead > 0:
		sayf(a.out, "Dead workers without orders are removed by the others.")
	}
}

// workers collects the consumers of every partition, and those with a heartbeat that are no consumer yet: Redis counts
// one only once it was given something.
func (s *stores) workers(ctx context.Context) ([]workerView, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	byName, err := s.beating(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range s.partitions() {
		consumers, err := s.redis.XInfoConsumers(ctx, s.keys.Orders(p), pipeline.Group).Result()
		if err != nil && !noGroup(err) {
			return nil, unavailable(err, "Redis did not list the workers")
		}
		for _, c := range consumers {
			addConsumer(byName, c)
		}
	}
	views := make([]workerView, 0, len(byName))
	for _, v := range byName {
		views = append(views, *v)
	}
	slices.SortFunc(views, func(a, b workerView) int { return strings.Compare(a.Name, b.Name) })
	return views, nil
}

func addConsumer(byName map[string]*workerView, c redis.XInfoConsumer) {
	v := byName[c.Name]
	if v == nil {
		v = &workerView{Name: c.Name}
		byName[c.Name] = v
	}
	v.Partitions++
	v.Pending += c.Pending
	if idle := c.Idle.Milliseconds(); v.IdleMS == nil || idle < *v.IdleMS {
		v.IdleMS = &idle
	}
}

// beating finds the workers with a heartbeat. Each has one on every partition, so the first partition has them all.
func (s *stores) beating(ctx context.Context) (map[string]*workerView, error) {
	prefix := s.keys.Worker(0, "")
	keys, err := s.scan(ctx, prefix+"*")
	if err != nil {
		return nil, unavailable(err, "Redis did not return the heartbeats")
	}
	byName := map[string]*workerView{}
	for _, key := range keys {
		v := &workerView{Name: strings.TrimPrefix(key, prefix), Alive: true}
		beat, err := s.redis.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			continue // it has just expired
		}
		if err != nil {
			return nil, unavailable(err, "Redis did not return the heartbeats")
		}
		if started, err := time.Parse(time.RFC3339Nano, beat); err == nil {
			v.started, v.StartedAt = started, view.TimeOrNil(started)
		}
		byName[v.Name] = v
	}
	return byName, nil
}
