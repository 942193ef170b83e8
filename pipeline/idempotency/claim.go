package idempotency

import "context"

// Claim is the right of one try to do what a key stands for.
type Claim struct {
	ID    int64  // of the key's row
	Lease string // UUID: of this try, no other has it
	// Line is the line of the audit log that an earlier try wrote with its change; 0 where none did. That try died
	// before it could keep its answer.
	Line int64
}

type contextKey struct{}

// With returns a context in which a store marks what it changes as done for a claim.
func With(ctx context.Context, c Claim) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// From returns the claim on whose behalf something is changed; false where there is no key.
func From(ctx context.Context) (Claim, bool) {
	c, ok := ctx.Value(contextKey{}).(Claim)
	return c, ok
}

// Done reports whether an earlier try of the same request has made its change.
func Done(ctx context.Context) bool {
	c, ok := From(ctx)
	return ok && c.Line != 0
}
