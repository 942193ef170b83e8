package config_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"sluice/internal/config"
)

// TestRedisConnectionsAreKeptAlive: an idle connection to a machine that vanished is noticed by the system, in the time
// that we have named; and a TLS connection is one, although the dialer is ours.
func TestRedisConnectionsAreKeptAlive(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil) // any server will do: it only has to accept and shake hands
	defer server.Close()
	addr := server.Listener.Addr().String()
	for _, url := range []string{"redis://" + addr, "rediss://" + addr, "redis+cluster://" + addr} {
		opts, err := config.RedisOptions(url)
		if err != nil {
			t.Fatal(err)
		}
		if opts.TLSConfig != nil {
			opts.TLSConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		}
		conn, err := opts.Dialer(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if secure, ok := conn.(*tls.Conn); ok == (opts.TLSConfig == nil) {
			t.Errorf("%s: got TLS %v", url, ok)
		} else if ok {
			conn = secure.NetConn()
		}
		for option, want := range map[int]int{syscall.TCP_KEEPIDLE: 15, syscall.TCP_KEEPINTVL: 5, syscall.TCP_KEEPCNT: 3} {
			if got := socketOption(t, conn, option); got != want {
				t.Errorf("%s: socket option %d is %d, want %d", url, option, got, want)
			}
		}
	}
}

func socketOption(t *testing.T, conn net.Conn, option int) (value int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		value, failed = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, option)
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return value
}
