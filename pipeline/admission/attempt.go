package admission

import (
	"context"
	"io"
	"slices"

	"sluice/lua"
	"sluice/pipeline"
)

// attempted is what came of one attempt.
type attempted struct {
	reply     lua.AdmitReply
	level     pipeline.Durability
	journaled bool
}

// attempt runs the script once, finds out how durable its accepts are, and journals them.
func (g *gate) attempt(batch []*pendingRequest, again bool) (attempted, error) {
	c := g.controller
	c.attempts[g.at.Partition].RLock()
	defer c.attempts[g.at.Partition].RUnlock()
	c.metrics.batchSize.Observe(float64(len(batch)))
	reply, level, err := g.call(context.Background(), batch, again)
	if err != nil {
		return attempted{}, err
	}
	return attempted{reply, level, g.journal(batch, reply)}, nil
}

// call makes one call of the script, and has its accepts confirmed. With DURABILITY_STRICT it makes none that would be
// in vain.
func (g *gate) call(
	ctx context.Context, batch []*pendingRequest, again bool,
) (lua.AdmitReply, pipeline.Durability, error) {
	c := g.controller
	ctx, cancel := context.WithTimeout(ctx, c.opts.AttemptTimeout)
	defer cancel()
	if err := g.admits(ctx, again); err != nil {
		return lua.AdmitReply{}, "", err
	}
	if err := g.number(ctx, batch); err != nil {
		return lua.AdmitReply{}, "", err
	}
	requests := make([]lua.AdmitRequest, len(batch))
	for i, pending := range batch {
		requests[i] = pending.request
	}
	generation, err := c.opts.Fence.Current(g.at.Partition)
	if err != nil {
		return lua.AdmitReply{}, "", err
	}
	keys := g.keys
	keys.Fence = int64(generation)
	on, err := c.connections.take(ctx, g.marker)
	if err != nil {
		return lua.AdmitReply{}, "", err
	}
	broken := errUnread // until a reply was read to its end, also where this panics
	defer func() { c.connections.put(on, broken) }()
	if err := examine(ctx, on, g.marker); err != nil {
		broken = err
		return lua.AdmitReply{}, "", err
	}
	if broken = c.confirmer.ensure(ctx, on, g.marker); broken != nil {
		return lua.AdmitReply{}, "", putOff(broken, again)
	}
	broken = errUnread
	reply, err := lua.Admit(ctx, on, keys, g.at.SaleID, c.opts.StreamMaxLag, requests)
	if err != nil {
		broken = err
		return lua.AdmitReply{}, "", err
	}
	var level pipeline.Durability
	level, broken = c.confirmer.confirm(on, g.marker, again, reply)
	return reply, level, nil
}

// errUnread stands for a reply of which something may still be on the connection. It counts as a fault of the network.
var errUnread = io.ErrUnexpectedEOF

// number gives order numbers to the requests that have none yet; a second attempt keeps those of the first.
func (g *gate) number(ctx context.Context, batch []*pendingRequest) error {
	if !slices.ContainsFunc(batch, func(pending *pendingRequest) bool { return pending.request.Number == 0 }) {
		return nil
	}
	numbers := make([]int64, len(batch))
	if err := g.controller.numbers.Take(ctx, numbers); err != nil {
		return err
	}
	for i, pending := range batch {
		if pending.request.Number == 0 {
			pending.request.Number = numbers[i]
		}
	}
	return nil
}
