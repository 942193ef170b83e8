package retry

import (
	"context"
	"errors"
	"time"

	"sluice/lua"
	"sluice/pipeline"
)

const (
	// CommandTimeout bounds a call to Redis that is not part of a buyer's request.
	CommandTimeout = 3 * time.Second
	// AttemptTimeout bounds one script call of a request, so that a lost reply leaves time for another attempt within the
	// two seconds of the request.
	AttemptTimeout = 750 * time.Millisecond
)

// Call makes a script call and repeats it while its reply is lost, until the context ends. The script must give the
// same answer to the same call. Errors: KindUnavailable; lua.ErrNotLoaded and lua.ErrUntrusted are returned unchanged.
func Call[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	backoff := NewRequestBackoff()
	for {
		attempt, cancel := context.WithTimeout(ctx, AttemptTimeout)
		result, err := call(attempt)
		cancel()
		switch {
		case err == nil, errors.Is(err, lua.ErrNotLoaded), errors.Is(err, lua.ErrUntrusted):
			return result, err
		case ctx.Err() != nil:
			return result, pipeline.Wrap(pipeline.KindUnavailable, err, "no answer from Redis in time; ask again")
		case !IsTransient(err):
			return result, Unavailable(err)
		}
		backoff.Wait(ctx)
	}
}
