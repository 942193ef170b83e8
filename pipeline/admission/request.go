package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/google/uuid"

	"sluice/lua"
	"sluice/pipeline"
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
	if req.IdempotencyKey != "" {
		r.KeyHash = shortHash(req.IdempotencyKey)
		r.PayloadHash = shortHash(strconv.Itoa(req.Quantity))
	}
	return r, nil
}

// shortHash keeps 96 bits: enough that two keys of one buyer never collide, and short in a million slots.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:12])
}
