package limits_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/httpapi/limits"
)

func TestParseRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]limits.Rate{
		"100/1s": {100, time.Second}, "1/1h": {1, time.Hour}, "20/1m": {20, time.Minute}, "off": {},
	} {
		got, err := limits.ParseRate(text)
		if err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
		if again, err := limits.ParseRate(got.String()); err != nil || again != got {
			t.Errorf("%q is read as %v, written as %q and read as %v, %v", text, got, got, again, err)
		}
	}
	for _, text := range []string{
		"", "100", "0/1s", "-1/1s", "1/0s", "1/500ms", "1/1500ms", "1/2h", "1/-1s", "x/1s", "1/x", "1/1s/1s",
		"3000000000/1s", "OFF",
	} {
		if got, err := limits.ParseRate(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

// A key gets so many at once, then as many as the rate lets through, however often it asks; another key is not touched.
func TestLimiter(t *testing.T) {
	t.Parallel()
	l := limits.NewLimiter[string]("buyer", limits.Rate{Requests: 10, Per: 2 * time.Second})
	now := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	through := 0
	for at := time.Duration(0); at < 20*time.Second; at += 10 * time.Millisecond {
		refused := l.Take("ann", now.Add(at))
		if refused == nil {
			through++
			continue
		}
		if refused.Wait <= 0 || refused.Wait > 201*time.Millisecond || refused.Policy != "buyer" {
			t.Fatalf("at %s: %+v", at, refused)
		}
		if l.Peek("ann", now.Add(at)) == nil || l.Peek("ann", now.Add(at).Add(refused.Wait)) != nil {
			t.Fatalf("at %s: it says to wait %s", at, refused.Wait)
		}
	}
	if through < 105 || through > 111 { // 10 at once, and 5 a second
		t.Errorf("%d came through in 20 s, want some 110", through)
	}
	if l.Take("bob", now) != nil {
		t.Error("bob was refused because of ann")
	}
	if l.Peek("cleo", now) != nil {
		t.Error("a key that never asked is refused")
	}
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	l := limits.NewLimiter[string]("buyer", limits.Rate{})
	c := limits.NewConcurrent[string]("waits", 0)
	for range 1000 {
		if l.Take("ann", time.Now()) != nil || l.Peek("ann", time.Now()) != nil || c.Enter("ann") != nil {
			t.Fatal("refused without a limit")
		}
	}
	c.Leave("ann")
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	c := limits.NewConcurrent[string]("waits", 5)
	var now, refused atomic.Int64
	var over atomic.Bool
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 200 {
				if c.Enter("ann") != nil {
					refused.Add(1)
					continue
				}
				n := now.Add(1)
				if n > 5 {
					over.Store(true)
				}
				time.Sleep(10 * time.Microsecond)
				now.Add(-1)
				c.Leave("ann")
			}
		})
	}
	all.Wait()
	if over.Load() || refused.Load() == 0 {
		t.Errorf("more than 5 at once: %t; %d refused, want some", over.Load(), refused.Load())
	}
	for n := range 5 {
		if c.Enter("ann") != nil {
			t.Errorf("%d are left over", 5-n)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	behind := limits.NewAddresses([]netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48"),
	})
	for _, c := range []struct{ remote, forwarded, want string }{
		{"203.0.113.7:1234", "", "203.0.113.7/32"},
		{"203.0.113.7:1234", "1.2.3.4", "203.0.113.7/32"}, // of no proxy: a claim
		{"10.1.2.3:1234", "203.0.113.7", "203.0.113.7/32"},
		{"10.1.2.3:1234", "1.2.3.4, 203.0.113.7", "203.0.113.7/32"},
		{"10.1.2.3:1234", "1.2.3.4, 203.0.113.7, 10.9.9.9", "203.0.113.7/32"}, // two proxies
		{"10.1.2.3:1234", "", "10.1.2.3/32"},
		{"10.1.2.3:1234", "garbage", "10.1.2.3/32"},
		{"10.1.2.3:1234", "1.2.3.4, garbage", "10.1.2.3/32"},
		{"10.1.2.3:1234", "1.2.3.4, garbage, 203.0.113.7", "203.0.113.7/32"},
		{"10.1.2.3:1234", "1.2.3.4, garbage, 10.9.9.9", "10.9.9.9/32"},
		{"10.1.2.3:1234", "10.9.9.9, 10.8.8.8", "10.9.9.9/32"},
		{"10.1.2.3:1234", "1.2.3.4:5, 203.0.113.7:61234", "203.0.113.7/32"}, // with ports, as some gateways write them
		{"10.1.2.3:1234", "[2001:db8:5:6::7]:61234, 10.9.9.9:1", "2001:db8:5:6::/64"},
		{"10.1.2.3:1234", "[2001:db8:5:6::7]", "2001:db8:5:6::/64"},
		{"10.1.2.3:1234", "fe80::7%eth0", "fe80::/64"},
		{"10.1.2.3:1234", "::ffff:203.0.113.7", "203.0.113.7/32"},
		{"10.1.2.3:1234", "203.0.113.7,", "10.1.2.3/32"},
		{"[::ffff:10.1.2.3]:1234", "203.0.113.7", "203.0.113.7/32"},
		{"[::ffff:203.0.113.7]:1234", "", "203.0.113.7/32"},
		{"[2001:db8:1:2:3::4]:1234", "", "2001:db8:1:2::/64"},
		{"[fe80::1%eth0]:1234", "", "fe80::/64"},
		{"[2001:db8:ffff::1]:1234", "2001:db8:5:6:7::8", "2001:db8:5:6::/64"},
		{"127.0.0.1:1234", "1.2.3.4", "127.0.0.1/32"}, // loopback is trusted only where it is named
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{}}
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := limits.ClientOf(behind.Of(r)).String(); got != c.want {
			t.Errorf("%s for %q: got %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
	twice := &http.Request{RemoteAddr: "10.1.2.3:1234", Header: http.Header{
		"X-Forwarded-For": {"1.2.3.4, 203.0.113.7", "10.9.9.9", "10.8.8.8"}, // the last proxy's is the last
	}}
	if got := behind.Of(twice).String(); got != "203.0.113.7" {
		t.Errorf("several headers: got %s", got)
	}
	zoned := limits.NewAddresses([]netip.Prefix{netip.MustParsePrefix("fe80::/10")})
	link := &http.Request{RemoteAddr: "[fe80::1%eth0]:1234", Header: http.Header{"X-Forwarded-For": {"203.0.113.7"}}}
	if got := zoned.Of(link).String(); got != "203.0.113.7" {
		t.Errorf("a proxy on the same link: got %s", got)
	}
	r := &http.Request{RemoteAddr: "@", Header: http.Header{}} // a Unix socket
	if got := behind.Of(r); got.IsValid() {
		t.Errorf("a socket: got %s", got)
	}
	for _, forwarded := range []string{"1.2.3.4, 203.0.113.7, 10.0.0.1", "1.2.3.4, 203.0.113.7, 127.0.0.1"} {
		r.Header.Set("X-Forwarded-For", forwarded)
		if got := behind.Of(r).String(); got != "203.0.113.7" {
			t.Errorf("a proxy on a socket, %s: got %s", forwarded, got)
		}
	}
}

// listen accepts connections within the limits, and keeps them until the listener is closed.
func listen(t *testing.T, c limits.Connections) (address string, kept func() []net.Conn, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []net.Conn
	var running sync.WaitGroup
	limited := c.Listener(l)
	running.Go(func() {
		for {
			conn, err := limited.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			_, _ = conn.Write([]byte("in"))
			mu.Lock()
			all = append(all, conn)
			mu.Unlock()
		}
	})
	end = sync.OnceFunc(func() {
		_ = limited.Close()
		running.Wait()
		for _, conn := range all {
			_ = conn.Close()
		}
	})
	t.Cleanup(end)
	return l.Addr().String(), func() []net.Conn {
		mu.Lock()
		defer mu.Unlock()
		return append([]net.Conn(nil), all...)
	}, end
}

// dial reports whether a connection was kept.
func dial(t *testing.T, address string) bool {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	n, _ := conn.Read(make([]byte, 2))
	return n == 2
}

func TestConnections(t *testing.T) {
	t.Parallel()
	everybody := limits.NewAddresses(nil)
	loopback := limits.NewAddresses([]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")})
	three := func() *limits.Concurrent[netip.Prefix] {
		return limits.NewConcurrent[netip.Prefix]("client-connections", 3)
	}
	for name, c := range map[string]struct {
		limits limits.Connections
		kept   int
		reason string
	}{
		"of one client": {limits.Connections{PerClient: three(), Addresses: everybody}, 3, "client-connections"},
		"of a proxy":    {limits.Connections{PerClient: three(), Addresses: loopback}, 6, ""},
		"in all": {
			limits.Connections{
				PerClient: three(), Total: limits.NewConcurrent[string]("connections", 2), Addresses: loopback,
			}, 2, "connections",
		},
		"opened": {
			limits.Connections{
				Opened:    limits.NewLimiter[netip.Prefix]("opened", limits.Rate{Requests: 4, Per: time.Hour}),
				Addresses: everybody,
			}, 4, "opened",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var refused sync.Map
			c.limits.Refused = func(r *limits.Refusal) { refused.Store(r.Policy, true) }
			address, kept, _ := listen(t, c.limits)
			got := 0
			for range 6 {
				if dial(t, address) {
					got++
				}
			}
			if got != c.kept {
				t.Errorf("%d of 6 were kept, want %d", got, c.kept)
			}
			if _, counted := refused.Load(c.reason); counted != (c.reason != "") {
				t.Errorf("refused because of %q: %t", c.reason, counted)
			}
			if c.reason == "opened" { // closing makes no room there
				return
			}
			first := kept()[0]
			_ = first.Close()
			_ = first.Close() // counts once
			if !dial(t, address) {
				t.Error("a closed connection makes no room")
			}
			if c.reason != "" && dial(t, address) {
				t.Error("a connection that was closed twice makes room twice")
			}
		})
	}
}

// Of what a client has too many of, so many are held for at least a second before they are reset, and the others are
// reset at once. A listener that closes leaves none behind.
func TestHeldConnections(t *testing.T) {
	t.Parallel()
	address, _, end := listen(t, limits.Connections{
		PerClient: limits.NewConcurrent[netip.Prefix]("client-connections", 1), Addresses: limits.NewAddresses(nil),
		Refused: func(*limits.Refusal) {}, Held: 2,
	})
	if !dial(t, address) {
		t.Fatal("the first was refused")
	}
	const dialled = 30
	refusedAfter := make(chan time.Duration, dialled)
	for range dialled {
		go func() {
			began := time.Now()
			dial(t, address)
			refusedAfter <- time.Since(began)
		}()
	}
	var held int
	for range dialled {
		if <-refusedAfter >= time.Second {
			held++
		}
	}
	if held < 2 || held == dialled { // on a busy machine some that are reset at once may take as long
		t.Errorf("%d of %d were held, want 2", held, dialled)
	}
	if dial(t, address) {
		t.Error("another one got in")
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	end()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection of a closed listener: got %v, want that it was reset", err)
	}
}

func BenchmarkTake(b *testing.B) {
	l := limits.NewLimiter[netip.Prefix]("client", limits.Rate{Requests: 1 << 30, Per: time.Second})
	var keys []netip.Prefix
	for n := range 10_000 {
		keys = append(keys, limits.ClientOf(netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", n/250, n%250))))
	}
	b.ReportAllocs()
	now := time.Now()
	for n := 0; b.Loop(); n++ {
		_ = l.Take(keys[n%len(keys)], now)
	}
}
