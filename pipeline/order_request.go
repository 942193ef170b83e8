package pipeline

// MaxIdempotencyKeyBytes bounds the Idempotency-Key header; only a hash of it is kept.
const MaxIdempotencyKeyBytes = 255

// OrderRequest is what a buyer asks for.
type OrderRequest struct {
	UserID         string
	Quantity       int    // units, 1..MaxQuantityLimit; the sale's own limit is checked in Redis
	IdempotencyKey string // empty when the buyer sent none
	TraceParent    string // W3C trace context, only when sampled
	ReplayOnly     bool   // answer with the order that the key has, and take nothing where there is none
}

// Validate returns a KindInvalid error for a request that no sale could accept.
func (r *OrderRequest) Validate() error {
	if err := ValidateUserID(r.UserID); err != nil {
		return err
	}
	if r.Quantity < 1 || r.Quantity > MaxQuantityLimit {
		return Errorf(KindInvalid, "quantity %d: use 1 to %d", r.Quantity, MaxQuantityLimit)
	}
	if len(r.IdempotencyKey) > MaxIdempotencyKeyBytes {
		return Errorf(KindInvalid, "Idempotency-Key has %d bytes; at most %d are allowed",
			len(r.IdempotencyKey), MaxIdempotencyKeyBytes)
	}
	return nil
}
