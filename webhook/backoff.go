package webhook

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	backoffMin = time.Second // after the first failure
	// MaxBackoff is up to which it is doubled each time.
	MaxBackoff = time.Hour
	// FailingLimit is how long an endpoint may fail, counted from the first failure in a row, before it is disabled; and
	// how long an event that is resent may, before it is given up.
	FailingLimit = 24 * time.Hour
	// resendPause is how long the resends of an endpoint wait at most after one has failed: a receiver that is down gets
	// one in a while, and not each in turn.
	resendPause = 5 * time.Second
)

// retryBackoff is the wait after so many failures in a row, the last one included: it doubles each time, and varies at
// random by half, so that endpoints which failed together are not retried together.
func retryBackoff(failures int) time.Duration {
	growing := backoff.NewExponentialBackOff()
	growing.InitialInterval = MaxBackoff
	if doublings := max(failures, 1) - 1; doublings < 12 { // 2^12 s is above an hour
		growing.InitialInterval = min(backoffMin<<doublings, MaxBackoff)
	}
	growing.MaxInterval = MaxBackoff
	return min(growing.NextBackOff(), MaxBackoff)
}
