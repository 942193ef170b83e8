package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"
)

// crowd is what is ordered, by how many, how fast.
type crowd struct {
	api, sale                            string
	buyers, requests, clients, perSecond int
	seed                                 uint64
	spur                                 string // file; from rushPart on the crowd is slow until it exists
}

const (
	// rushPart is the part of the requests that comes at full speed before the crowd slows down: workers are busy then,
	// and most units are still there.
	rushPart = 0.4
	// slowPerSecond leaves minutes until the units are gone, and workers still get an order several times a second.
	slowPerSecond = 30
)

// request is one buyer's wish. Sending it again with the same key must not change anything.
type request struct{ buyer, key string }

// plan lists the requests: every buyer once, in random order, mixed with buyers who come again. Half of those repeat
// their request, the other half try for a second order.
func (c crowd) plan() []request {
	random := rand.New(rand.NewPCG(c.seed, 0)) // a crowd that can be repeated, not a secret
	requests := make([]request, 0, c.requests)
	for i := range c.requests {
		buyer := i
		key := "first"
		if i >= c.buyers {
			buyer = random.IntN(c.buyers)
			if i%2 == 0 {
				key = fmt.Sprintf("again-%d", i)
			}
		}
		requests = append(requests, request{buyer: fmt.Sprintf("buyer-%d", buyer), key: key})
	}
	random.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
	return requests
}

// order sends the whole plan at the crowd's pace and returns what was answered. It stops early when ctx ends or when a
// request got no answer at all.
func (c crowd) order(ctx context.Context) (*answers, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sender := &sender{
		url:    c.api + "/v1/sales/" + c.sale + "/orders",
		client: &http.Client{Timeout: answerTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: c.clients}},
	}
	defer sender.client.CloseIdleConnections()

	got := newAnswers()
	queue := make(chan request)
	var clients sync.WaitGroup
	for range c.clients {
		clients.Go(func() {
			for r := range queue {
				answer, retries, err := sender.send(ctx, r)
				if err != nil {
					cancel(err)
					continue
				}
				got.add(r, answer, retries)
			}
		})
	}
	c.pace(ctx, queue)
	close(queue)
	clients.Wait()
	return got, context.Cause(ctx)
}

// pace feeds the queue in small portions, so that the rate holds even where a timer is coarse.
func (c crowd) pace(ctx context.Context, queue chan<- request) {
	const portion = 10 * time.Millisecond
	tick := time.NewTicker(portion)
	defer tick.Stop()
	plan, due, last := c.plan(), 0.0, time.Now()
	for sent := 0; sent < len(plan); {
		now := time.Now()
		due += now.Sub(last).Seconds() * c.rate(sent)
		last = now
		for ; sent < len(plan) && float64(sent) < due; sent++ {
			select {
			case queue <- plan[sent]:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// rate is how many requests per second are due when so many were sent.
func (c crowd) rate(sent int) float64 {
	if c.spur == "" || float64(sent) < rushPart*float64(c.requests) {
		return float64(c.perSecond)
	}
	if _, err := os.Stat(c.spur); err == nil {
		return float64(c.perSecond)
	}
	return min(slowPerSecond, float64(c.perSecond))
}
