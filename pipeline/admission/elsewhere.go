package admission

import (
	"context"
	"time"

	"sluice/pipeline"
)

// Elsewhere looks after buyers whose partition of a sale has no units left, of a sale on several.
type Elsewhere interface {
	// Bring has a partition get so many units from the others, and reports whether it may have them now. False: all
	// partitions together had fewer a moment ago, and none was on its way.
	Bring(ctx context.Context, sale *pipeline.Sale, home pipeline.Partition, units int) (bool, error)
}

// errElsewhere is the answer to a buyer whom others were faster than, again and again.
var errElsewhere = pipeline.Errorf(pipeline.KindUnavailable,
	"the last units of the sale are on their way between its partitions; repeat the request")

// decide answers a request: from memory, or by asking Redis. No buyer of a sale on several partitions is refused as
// sold out before that is true of all of them together.
func (c *Controller) decide(ctx context.Context, sale *pipeline.Sale, g *gate, req pipeline.OrderRequest) (Decision, error) {
	alone := len(sale.Partitions) == 1 || c.opts.Elsewhere == nil
	decision, remembered := g.refuse(&req)
	if remembered && (alone || decision.Result != SoldOut) {
		c.metrics.remembered.Inc()
		return decision, nil
	}
	request, err := NewRequest(req)
	if err != nil {
		return Decision{}, err
	}
	for until := time.Now().Add(c.opts.RequestTimeout); time.Now().Before(until); {
		if !remembered {
			decision, err = g.submit(ctx, request)
		}
		if err != nil || alone || decision.Result != SoldOut {
			return decision, err
		}
		switch brought, err := c.opts.Elsewhere.Bring(ctx, sale, g.at.Partition, req.Quantity); {
		case err != nil:
			return Decision{}, err
		case !brought:
			return decision, nil
		}
		remembered = false
	}
	return Decision{}, errElsewhere
}
