package db

import (
	"context"
	"time"
)

// callTimeout bounds a call whose context has no deadline. It is the worker's batch deadline (DESIGN section 6): longer
// would outlive the order locks.
const callTimeout = 5 * time.Second

// deadline gives a context that has no deadline one of its own.
func deadline(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}
