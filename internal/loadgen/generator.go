package loadgen

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// Generator has a load's connections open, and runs it once.
type Generator struct {
	config      Config
	orders      []template // one for each sale
	connections []*connection
}

// Open checks the load and opens its connections, so that this is not on the clock. It returns an error if the server
// can't be reached. The Generator must be closed.
func Open(ctx context.Context, c Config) (*Generator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	to, err := targetOf(c.URL)
	if err != nil {
		return nil, err
	}
	g := &Generator{config: c.withDefaults()}
	for _, sale := range c.Sales {
		g.orders = append(g.orders, newTemplate(&g.config, to, sale))
	}
	for range c.Connections {
		one := newConnection(to, g.config.Deadline)
		if err := one.open(ctx); err != nil {
			g.Close()
			return nil, fmt.Errorf("connection %d of %d: %w", len(g.connections)+1, c.Connections, err)
		}
		g.connections = append(g.connections, one)
	}
	return g, nil
}

// Close ends all connections.
func (g *Generator) Close() {
	for _, one := range g.connections {
		one.close()
	}
}

// Run runs the load, and returns when its last request is answered or given up: a deadline after the load's length at
// the latest. When the context ends, it returns what was measured until then, and the context's error.
func (g *Generator) Run(ctx context.Context) (Result, error) {
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ctx.Done():
			g.Close() // ends the calls under way
		case <-ended:
		}
	})
	defer watching.Wait()
	defer close(ended)
	r := newRecorder(g.config.WarmUp)
	var err error
	if g.config.Rate > 0 {
		err = g.runOpen(ctx, r)
	} else {
		g.runClosed(ctx, r)
	}
	return r.result(), cmp.Or(err, ctx.Err())
}

// runOpen lets buyers arrive by their schedule. Each takes a free connection, or waits for one.
func (g *Generator) runOpen(ctx context.Context, r *recorder) error {
	queue := make(chan arrival, g.config.Waiting)
	began := time.Now()
	var running sync.WaitGroup
	for _, one := range g.connections {
		running.Go(func() {
			for next := range queue {
				g.serve(ctx, one, next, began, r)
			}
		})
	}
	err := newPacer(&g.config, r).run(ctx, began, queue)
	close(queue)
	running.Wait()
	return err
}

// serve sends a buyer's request. Its waiting time counts from when it was due: to count from when it was sent would
// hide just the waits that a slow server causes.
func (g *Generator) serve(ctx context.Context, one *connection, next arrival, began time.Time, r *recorder) {
	lastCall := g.config.WarmUp + g.config.Length + g.config.Deadline
	if ctx.Err() != nil || time.Since(began) > lastCall {
		r.notSent(next)
		return
	}
	a, err := one.send(ctx, g.order(next.buyer), g.config.Seed, next.buyer)
	r.done(next.due, time.Since(began), a, err)
}

func (g *Generator) order(buyer uint64) template { return g.orders[buyer%uint64(len(g.orders))] }

// runClosed has each connection send the next request as soon as the last one is answered. A connection that fails
// sends nothing more: without answers to wait for it would only flood.
func (g *Generator) runClosed(ctx context.Context, r *recorder) {
	until := g.config.WarmUp + g.config.Length
	began := time.Now()
	var running sync.WaitGroup
	for i, one := range g.connections {
		running.Go(func() {
			buyer := g.config.First + uint64(i)
			for sent := time.Since(began); sent < until && ctx.Err() == nil; {
				a, err := one.send(ctx, g.order(buyer), g.config.Seed, buyer)
				now := time.Since(began)
				r.done(sent, now, a, err)
				if err != nil {
					return
				}
				buyer += uint64(len(g.connections))
				sent = now
			}
		})
	}
	running.Wait()
}
