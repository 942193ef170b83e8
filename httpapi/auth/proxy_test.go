package auth_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"sluice/httpapi/auth"
)

// TestProxy: the header counts on connections from the proxy, and on no other, whatever a client says of addresses.
func TestProxy(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, auth.ProxyOptions{Header: "x-customer", Networks: prefixes("10.0.0.7/32", "fd00::/8")})
	for _, c := range []struct{ from, header, value, want string }{
		{"10.0.0.7:4711", "X-Customer", "ann", "ann"},
		{"[::ffff:10.0.0.7]:4711", "X-Customer", "ann", "ann"},
		{"[fd00::1%eth0]:4711", "X-Customer", "ann", "ann"},
		{"10.0.0.8:4711", "X-Customer", "ann", "401"},
		{"[::1]:4711", "X-Customer", "ann", "401"},
		{"@", "X-Customer", "ann", "401"},
		{"", "X-Customer", "ann", "401"},
		{"10.0.0.7:4711", "X-User-Id", "ann", "401"},
		{"10.0.0.7:4711", "X-Customer", "", "401"},
		{"10.0.0.7:4711", "X-Customer", "a b", "400 X-Customer"},
	} {
		r := request(t)
		r.RemoteAddr = c.from
		r.Header.Set(c.header, c.value)
		r.Header.Set("X-Forwarded-For", "10.0.0.7")
		r.Header.Set("Forwarded", "for=10.0.0.7")
		if got := outcome(t, proxy, r); got != c.want {
			t.Errorf("%+v: got %q, want %q", c, got, c.want)
		}
	}
	twice := request(t)
	twice.RemoteAddr = "10.0.0.7:4711"
	twice.Header["X-Customer"] = []string{"ann", "bob"}
	if got := outcome(t, proxy, twice); got != "400 X-Customer" {
		t.Errorf("twice the header: got %q", got)
	}
}

// TestProxyOverASocket: a connection over a Unix socket counts where unix is named, and there only.
func TestProxyOverASocket(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options auth.ProxyOptions
		network string
		want    string
	}{
		{auth.ProxyOptions{Socket: true}, "unix", "ann"},
		{auth.ProxyOptions{Socket: true}, "tcp", "401"},
		{auth.ProxyOptions{Networks: prefixes("127.0.0.1/32")}, "unix", "401"},
		{auth.ProxyOptions{Networks: prefixes("127.0.0.1/32")}, "tcp", "ann"},
	} {
		proxy := newProxy(t, c.options)
		address := "127.0.0.1:0"
		if c.network == "unix" {
			address = filepath.Join(t.TempDir(), "s")
		}
		l, err := net.Listen(c.network, address)
		must(t, err)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, outcome(t, proxy, r))
		}))
		must(t, server.Listener.Close())
		server.Listener = l
		server.Start()
		t.Cleanup(server.Close)
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		if c.network == "unix" {
			var dialer net.Dialer
			transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", address)
			}
		}
		r := request(t)
		r.URL.Scheme, r.URL.Host = "http", l.Addr().String()
		if c.network == "unix" {
			r.URL.Host = "api"
		}
		r.Header.Set("X-User-Id", "ann")
		response, err := transport.RoundTrip(r)
		must(t, err)
		got, err := io.ReadAll(response.Body)
		must(t, err)
		must(t, response.Body.Close())
		if string(got) != c.want {
			t.Errorf("%+v over %s: got %q, want %q", c.options, c.network, got, c.want)
		}
	}
}

// TestProxyOptions: settings by which everybody would be believed, or nobody, are refused.
func TestProxyOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]auth.ProxyOptions{
		"AUTH_PROXY_FROM is missing": {},
		"every address":              {Networks: prefixes("0.0.0.0/0")},
		"AUTH_PROXY_HEADER":          {Header: "X User", Socket: true},
	} {
		if _, err := auth.NewProxy(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestDev: what the header says is believed, where it is there once.
func TestDev(t *testing.T) {
	t.Parallel()
	for want, values := range map[string][]string{
		"ann": {"ann"}, "401": {""}, "400 X-User-Id": {"ann", "ann"},
	} {
		r := request(t)
		r.Header["X-User-Id"] = values
		if got := outcome(t, auth.Dev{}, r); got != want {
			t.Errorf("%q: got %q, want %q", values, got, want)
		}
	}
}

func newProxy(t testing.TB, o auth.ProxyOptions) *auth.Proxy {
	t.Helper()
	proxy, err := auth.NewProxy(o)
	must(t, err)
	return proxy
}

func prefixes(list ...string) (all []netip.Prefix) {
	for _, text := range list {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}
