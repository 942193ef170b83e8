//go:build !linux

package loadgen

import "time"

// timer waits as precisely as the runtime can, which is a millisecond where nothing else runs.
type timer struct{}

func newTimer() (*timer, error) { return &timer{}, nil }

// sleep returns after d.
func (*timer) sleep(d time.Duration) error {
	time.Sleep(d)
	return nil
}

func (*timer) close() error { return nil }
