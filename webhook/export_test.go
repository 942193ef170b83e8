package webhook

import (
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Hasten shortens the backoff between attempts and the timeout of each: no test waits for a day.
func (d *Deliverer) Hasten(pause, timeout time.Duration) {
	d.backoff = func(int) time.Duration { return pause }
	d.sender.timeout = timeout
	d.withheld = pause
}

// EncryptBefore is what an earlier build stored of a secret, bound to the URL alone.
func EncryptBefore(k *Keyring, secret, url string) string {
	sealed := k.keys[0].aead.Seal(nil, nil, []byte(secret), []byte(url))
	return urlPrefix + k.keys[0].name + ":" + base64.RawStdEncoding.EncodeToString(sealed)
}

// Dial connects as a delivery under the policy would.
func Dial(ctx context.Context, policy Policy, address string) (net.Conn, error) {
	return newSender(policy, nil).client.Transport.(*http.Transport).DialContext(ctx, "tcp", address)
}

// Public reports whether an address belongs to the internet at large.
func Public(ip netip.Addr) bool { return public(ip) }

// Backoff is the time until the next attempt.
func Backoff(failures int) time.Duration { return retryBackoff(failures) }

// BackoffMax is its upper bound.
const BackoffMax = MaxBackoff
