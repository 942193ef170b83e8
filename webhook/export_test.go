package webhook

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Hasten makes a deliverer repeat soon, and give up a delivery soon: nobody waits for a day in a test.
func (d *Deliverer) Hasten(pause, timeout time.Duration) {
	d.pause = func(int) time.Duration { return pause }
	d.sender.timeout = timeout
}

// Dial connects as a delivery would.
func (s *Sender) Dial(ctx context.Context, address string) (net.Conn, error) {
	return s.client.Transport.(*http.Transport).DialContext(ctx, "tcp", address)
}

// Public and Pause are what tests look at directly.
func Public(ip netip.Addr) bool { return public(ip) }

// Pause is the time until the next attempt.
func Pause(failures int) time.Duration { return pause(failures) }

// PauseMax is the cap.
const PauseMax = pauseMax
