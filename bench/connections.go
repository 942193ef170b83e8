package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	// answerLimit is how long a last answer may take after a load has ended: longer than any deadline of the api.
	answerLimit = 10 * time.Second
)

// connections is the connections of one load. Each has a goroutine that sends one request after the other, each for a
// buyer who was never seen before.
type connections struct{ connections []*connection }

func (f *load) connections() (*connections, error) {
	c, dialer := &connections{}, net.Dialer{Timeout: dialTimeout}
	for i := range f.Connections {
		conn, err := dialer.DialContext(context.Background(), "tcp", f.Addr)
		if err != nil {
			c.close()
			return nil, err
		}
		c.connections = append(c.connections, newConnection(conn, f, uint64(i)))
	}
	return c, nil
}

func (c *connections) close() {
	for _, one := range c.connections {
		_ = one.conn.Close() // all is answered
	}
}

func (c *connections) run(f *load) (loadResult, error) {
	began := time.Now()
	until := began.Add(f.Length)
	errs := make([]error, len(c.connections))
	var running sync.WaitGroup
	for i, one := range c.connections {
		running.Go(func() {
			if errs[i] = one.conn.SetDeadline(until.Add(answerLimit)); errs[i] != nil {
				return
			}
			if f.Rate > 0 {
				arrivals := rand.New(rand.NewPCG(f.Seed, f.First+uint64(i)))
				errs[i] = one.arrive(began, until, f.Rate/float64(f.Connections), arrivals)
			} else {
				errs[i] = one.rush(until)
			}
		})
	}
	running.Wait()
	return c.tally(time.Since(began)), errors.Join(errs...)
}

func (c *connections) tally(took time.Duration) loadResult {
	t := loadResult{Statuses: map[int]int64{}, Took: took}
	var all []uint32
	for _, one := range c.connections {
		for status, n := range one.statuses {
			if n > 0 {
				t.Statuses[status] += n
			}
		}
		all = append(all, one.micros...)
	}
	t.Latency = quantilesOf(all)
	return t
}

// rush sends the next request as soon as the last one is answered.
func (c *connection) rush(until time.Time) error {
	for sent := time.Now(); sent.Before(until); {
		if err := c.order(); err != nil {
			return err
		}
		now := time.Now()
		c.note(now.Sub(sent))
		sent = now
	}
	return nil
}

// arrive sends requests at random moments, at so many per second on average (a Poisson process), whether or not the
// server keeps up. A request that had to wait for the connection counts from the moment at which it was due: to count
// from when it was sent would hide just the waits that a slow server causes. One that found it free counts from when
// it was sent, because that the timer fired late is not the server's fault.
func (c *connection) arrive(began, until time.Time, rate float64, arrivals *rand.Rand) error {
	for due := began; ; {
		due = due.Add(time.Duration(arrivals.ExpFloat64() / rate * float64(time.Second)))
		if !due.Before(until) {
			return nil
		}
		from := due
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
			from = time.Now()
		}
		if err := c.order(); err != nil {
			return err
		}
		c.note(time.Since(from))
	}
}
