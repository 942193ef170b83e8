package admission

import (
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// journal keeps the accepts of a batch whose receipts are about to be given, those that were given before included: the
// api that gave them may be gone. It reports whether they are on disk. An order that has ended is not kept: submitted
// again, it would take units for nobody where Postgres has forgotten that it ended.
func (g *gate) journal(batch []*pendingRequest, reply lua.AdmitReply) (onDisk bool) {
	accepts := make([]pipeline.Accept, 0, len(batch))
	for i, outcome := range reply.Outcomes {
		if outcome.Code != lua.AdmitAccepted && outcome.Code != lua.AdmitReplayed {
			continue
		}
		accept := pipeline.Accept{
			Event:       redisstore.EventOfSlot(g.at, batch[i].request.UserID, outcome.Slot),
			PayloadHash: outcome.Slot.PayloadHash,
		}
		accept.TraceParent = batch[i].request.TraceParent
		accepts = append(accepts, accept)
	}
	return len(accepts) > 0 && g.controller.opts.Journal.Append(g.at, accepts)
}
