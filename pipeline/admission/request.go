package admission

import (
	"github.com/google/uuid"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// NewRequest gives a request its order id. The id is made once, before the first attempt: it makes a second attempt
// harmless. Errors: KindUnavailable, where the system gives no randomness.
func NewRequest(req pipeline.OrderRequest) (lua.AdmitRequest, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return lua.AdmitRequest{}, pipeline.Wrap(pipeline.KindUnavailable, err, "no randomness for an order id")
	}
	r := lua.AdmitRequest{
		OrderID: id.String(), UserID: req.UserID, Quantity: req.Quantity, TraceParent: req.TraceParent,
	}
	r.KeyHash = redisstore.KeyHash(req.IdempotencyKey)
	r.PayloadHash = redisstore.PayloadHash(r.KeyHash, r.Quantity)
	return r, nil
}
