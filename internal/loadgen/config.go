package loadgen

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The bounds of a load. They keep a slip of the finger from becoming an attack.
const (
	MaxConnections = 4096
	MaxRate        = 1_000_000 // requests/s
	MaxLength      = 24 * time.Hour
)

// What is not set in a Config.
const (
	// DefaultWaiting is how many buyers may wait for a free connection: some seconds' worth of a load that one machine
	// can send. More would only say again that the server is too slow.
	DefaultWaiting = 100_000
	// DefaultDeadline is longer than any deadline of the api, so that the api gives up first, and says so.
	DefaultDeadline = 10 * time.Second
	// DefaultUserHeader names the buyer, where the api runs with AUTH_MODE=dev.
	DefaultUserHeader = "X-User-Id"
)

// Config is a load. Its JSON is how one process asks another for it.
type Config struct {
	URL   string   `json:"url"`   // of the api, http or https, without a path: http://127.0.0.1:8080
	Sales []string `json:"sales"` // ids; buyers take turns at them
	// Quantity is the units of each order; 0: 1.
	Quantity    int               `json:"quantity"`
	Headers     map[string]string `json:"headers"`     // sent with each request
	UserHeader  string            `json:"user_header"` // names the buyer; empty: DefaultUserHeader
	Keys        bool              `json:"keys"`        // each request has an Idempotency-Key
	Connections int               `json:"connections"` // kept, at most MaxConnections
	Rate        float64           `json:"rate"`        // requests/s in all; 0: the closed model
	WarmUp      time.Duration     `json:"warm_up"`     // before Length; what arrives in it is sent and not counted
	Length      time.Duration     `json:"length"`      // of what is counted
	Waiting     int               `json:"waiting"`     // buyers that may wait for a connection; 0: DefaultWaiting
	Deadline    time.Duration     `json:"deadline"`    // of one request once it is sent; 0: DefaultDeadline
	Seed        uint64            `json:"seed"`        // makes the buyers' ids and the times of arrival
	First       uint64            `json:"first"`       // number of the first buyer; no buyer comes twice
}

func (c Config) withDefaults() Config {
	c.Quantity = cmp.Or(c.Quantity, 1)
	c.UserHeader = cmp.Or(c.UserHeader, DefaultUserHeader)
	c.Waiting = cmp.Or(c.Waiting, DefaultWaiting)
	c.Deadline = cmp.Or(c.Deadline, DefaultDeadline)
	return c
}

// Validate returns every broken rule at once.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	_, err := targetOf(c.URL)
	check(err == nil, "%w", err)
	check(len(c.Sales) > 0, "no sale is named")
	for _, sale := range c.Sales {
		check(sale != "" && url.PathEscape(sale) == sale, "sale %q is not the id of a sale", sale)
	}
	check(c.Quantity >= 0, "quantity %d: use 1 or more", c.Quantity)
	check(c.Connections >= 1 && c.Connections <= MaxConnections, "%d connections: use 1 to %d", c.Connections,
		MaxConnections)
	check(c.Rate >= 0 && c.Rate <= MaxRate && !math.IsNaN(c.Rate), "rate %g: use 0 to %d", c.Rate, MaxRate)
	check(c.WarmUp >= 0 && c.WarmUp <= MaxLength, "warm-up %s: use 0s to %s", c.WarmUp, MaxLength)
	check(c.Length > 0 && c.Length <= MaxLength, "length %s: use more than 0s and at most %s", c.Length, MaxLength)
	check(c.Waiting >= 0, "%d may wait: use 0 or more", c.Waiting)
	check(c.Deadline >= 0, "deadline %s: use 0s or more", c.Deadline)
	for name, value := range c.Headers {
		check(isHeader(name, value), "header %q can't be sent", name)
	}
	check(c.UserHeader == "" || isHeader(c.UserHeader, ""), "header %q can't be sent", c.UserHeader)
	return errors.Join(errs...)
}

// isHeader refuses what would end the line, or begin another request, and the headers that the generator writes itself.
func isHeader(name, value string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "", "Host", "Content-Length", "Transfer-Encoding", "Connection":
		return false
	}
	return !strings.ContainsAny(name, " :\r\n\t") && !strings.ContainsAny(value, "\r\n\x00")
}

// target is where a load goes.
type target struct {
	addr   string // host:port
	host   string // as the Host header has it
	secure bool
}

func targetOf(address string) (target, error) {
	u, err := url.Parse(address)
	if err != nil {
		return target{}, fmt.Errorf("%q is not an address like http://127.0.0.1:8080", address)
	}
	more := u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != ""
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || more {
		return target{}, fmt.Errorf("%q is not an address like http://127.0.0.1:8080, and nothing more", u.Redacted())
	}
	t := target{host: u.Host, secure: u.Scheme == "https"}
	port := "80"
	if t.secure {
		port = "443"
	}
	t.addr = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
	return t, nil
}
