package admission

import (
	"context"
	"errors"

	"sluice/lua"
	"sluice/pipeline"
)

// rehearsedSale is a sale that can't exist: no id of a sale begins like this.
const rehearsedSale = "-rehearsal"

// Rehearse does on a partition what an order does, on the same connections and by the same script, but for a sale that
// can't exist: nothing is changed, and one order number is used. nil means that an order would be decided now, and
// confirmed as DURABILITY_STRICT demands. It takes as long as one attempt at most. Errors: KindUnavailable.
func (c *Controller) Rehearse(ctx context.Context, p pipeline.Partition) error {
	request, err := NewRequest(pipeline.OrderRequest{UserID: "rehearsal", Quantity: 1})
	if err != nil {
		return err
	}
	g := newGate(c, pipeline.SalePartition{SaleID: rehearsedSale, Partition: p})
	reply, _, err := g.call(ctx, []*pendingRequest{{ctx: ctx, request: request}}, false)
	if errors.Is(err, ErrDurabilityUnavailable) {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "DURABILITY_STRICT is on, and DURABILITY can't be confirmed for "+
			"an order on partition "+p.String()+": orders are refused")
	}
	if err != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err,
			"Redis does not do what an order on partition "+p.String()+" needs")
	}
	if reply.Outcomes[0].Code == lua.AdmitUntrusted {
		return pipeline.Errorf(pipeline.KindUnavailable, "partition %s is not verified", p)
	}
	return nil
}
