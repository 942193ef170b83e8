package auditlog

import "context"

type reasonKey struct{}

// Because returns a context in which the lines that a store writes say why. An empty reason says nothing.
func Because(ctx context.Context, reason string) context.Context {
	if reason == "" {
		return ctx
	}
	return context.WithValue(ctx, reasonKey{}, reason)
}

// Reason returns why something is done, or "".
func Reason(ctx context.Context) string {
	reason, _ := ctx.Value(reasonKey{}).(string)
	return reason
}
