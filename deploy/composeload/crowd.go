package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"sluice/internal/buyers"
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
	// deadline bounds one request. The API answers within its own, shorter deadline.
	deadline = 10 * time.Second
	// patience bounds all attempts at one request together: a stack that is down for longer has failed the test.
	patience    = 60 * time.Second
	maxAttempts = 1000 // more than fit into it
)

// plan lists the requests: every buyer once, mixed with buyers who come again. Half of those repeat their request,
// the other half try for a second order.
func (c crowd) plan() []buyers.Request {
	p := buyers.Planner{Sale: c.sale, Buyers: c.buyers, Random: rand.New(rand.NewPCG(c.seed, 0))}
	return p.Rush(c.requests)
}

// order sends the whole plan at the crowd's pace and returns what was answered. It stops early when ctx ends or when a
// request got no answer at all.
func (c crowd) order(ctx context.Context) (*buyers.History, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := buyers.NewClient(buyers.Options{
		APIs: []string{c.api}, Connections: c.clients, Deadline: deadline,
		Attempts: maxAttempts,
	})
	defer client.Close()
	gap := func(sent int, _ time.Duration) time.Duration {
		return time.Duration(float64(time.Second) / c.rate(sent))
	}
	buyers.Each(ctx, c.plan(), buyers.Pace{AtOnce: c.clients, Gap: gap}, func(r buyers.Request) {
		patient, stop := context.WithTimeout(ctx, patience)
		defer stop()
		if o, attempts := client.Ask(patient, 0, r); o == buyers.NoAnswer {
			cancel(fmt.Errorf("%s got no answer that settles it in %d attempts: %w", r.User(), attempts, patient.Err()))
		}
	})
	return client.History, context.Cause(ctx)
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

// maxFaults is how many broken answers are written in full; the rest only count.
const maxFaults = 10

// check compares the answers with the contract: one order per buyer, and the same one every time. It returns what
// broke it.
func check(h *buyers.History) error {
	found := buyers.Prove(h, nil, buyers.Terms{Answered: true}).Findings
	if len(found) == 0 {
		return nil
	}
	var faults []error
	for _, f := range found[:min(len(found), maxFaults)] {
		faults = append(faults, errors.New(f.Text))
	}
	return fmt.Errorf("%d answers break the contract, such as:\n%w", len(found), errors.Join(faults...))
}

// write puts the ids of accepted orders into a file, sorted, one per line.
func write(h *buyers.History, file string) error {
	var text strings.Builder
	for _, id := range slices.Sorted(maps.Keys(h.Owners())) {
		text.WriteString(id + "\n")
	}
	return os.WriteFile(file, []byte(text.String()), 0o600)
}

// summary is the counts, in the order of their names.
func summary(h *buyers.History) string {
	t := h.Tally()
	var parts []string
	for _, count := range []struct {
		n    int
		what string
	}{
		{t.Orders, buyers.Accepted.Code()},
		{
			t.Outcomes[buyers.AlreadyOrdered],
			buyers.AlreadyOrdered.Code(),
		},
		{t.Replays, "repeated"},
		{t.Outcomes[buyers.SoldOut], buyers.SoldOut.Code()},
	} {
		if count.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count.n, count.what))
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("%d sent again", t.Repeated)), ", ")
}
