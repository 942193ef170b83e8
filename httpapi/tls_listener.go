package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	// handshakeTimeout is from the accept to the end of the handshake, whatever the client sends meanwhile.
	handshakeTimeout = 5 * time.Second
	// drainTimeout and drainBytes are what is still read of a client that is told to use TLS: closed before, the
	// connection would be reset, and the answer lost.
	drainTimeout = time.Second
	drainBytes   = 64 << 10
)

// How a handshake ended, as a label of its metric.
const (
	handshakeDone    = "done"
	handshakeTimeOut = "timeout"
	handshakePlain   = "plain" // the client does not speak TLS
	handshakeFailed  = "failed"
)

// CountHandshakes returns the metric for TLSListener.
func CountHandshakes(reg prometheus.Registerer) *prometheus.CounterVec {
	counter := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_tls_handshakes_total",
		Help: "TLS handshakes of clients, by result: done, timeout, plain (HTTP without TLS) or failed (no common " +
			"version, a client that does not trust the certificate, one that left).",
	}, []string{"result"})
	for _, result := range []string{handshakeDone, handshakeTimeOut, handshakePlain, handshakeFailed} {
		counter.WithLabelValues(result)
	}
	return counter
}

// TLSListener is Listener over TLS. It makes the handshakes itself, because net/http would log each one that fails, and
// could not be answered for: what a client is refused with is written inside of TLS. Who owns the listener closes it,
// which ends the handshakes under way.
func TLSListener(l net.Listener, config *tls.Config, handshakes *prometheus.CounterVec) net.Listener {
	t := &tlsListener{
		Listener: l, config: config, handshakes: handshakes, ready: make(chan accepted), closing: make(chan struct{}),
		open: map[net.Conn]bool{},
	}
	t.running.Go(t.acceptAll)
	return t
}

type accepted struct {
	conn net.Conn
	err  error
}

type tlsListener struct {
	net.Listener
	config     *tls.Config
	handshakes *prometheus.CounterVec
	ready      chan accepted
	running    sync.WaitGroup

	mu      sync.Mutex        // protects the rest
	open    map[net.Conn]bool // in a handshake
	closed  bool
	closing chan struct{}
}

// Accept returns the next connection whose handshake is done.
func (t *tlsListener) Accept() (net.Conn, error) {
	select {
	case next := <-t.ready:
		return next.conn, next.err
	case <-t.closing:
		return nil, net.ErrClosed
	}
}

// Close ends the handshakes under way, and waits for them.
func (t *tlsListener) Close() error {
	t.mu.Lock()
	first := !t.closed
	if first {
		t.closed = true
		close(t.closing)
	}
	for conn := range t.open {
		_ = conn.Close()
	}
	t.mu.Unlock()
	if !first {
		return nil
	}
	err := t.Listener.Close()
	t.running.Wait()
	return err
}

// acceptAll never waits for a client. An error waits until net/http has taken it, which knows when to try again.
func (t *tlsListener) acceptAll() {
	for {
		conn, err := t.Listener.Accept()
		if err != nil {
			if !t.hand(nil, err) {
				return
			}
			continue
		}
		if !t.enter(conn) {
			_ = conn.Close()
			return
		}
		t.running.Go(func() { t.handshake(conn) })
	}
}

// hand gives a connection to who accepts, and returns false when nobody does any more.
func (t *tlsListener) hand(conn net.Conn, err error) bool {
	select {
	case t.ready <- accepted{conn, err}:
		return true
	case <-t.closing:
		return false
	}
}

// enter notes a handshake, so that Close ends it. It returns false after Close.
func (t *tlsListener) enter(conn net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.open[conn] = true
	}
	return !t.closed
}

func (t *tlsListener) leave(conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, conn)
}

func (t *tlsListener) handshake(raw net.Conn) {
	defer t.leave(raw)
	_ = raw.SetDeadline(time.Now().Add(handshakeTimeout)) // fails on a closed connection only
	secured := tls.Server(raw, t.config)
	if err := secured.HandshakeContext(context.Background()); err != nil {
		t.handshakes.WithLabelValues(failure(err)).Inc()
		if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && isHTTP(plain) {
			tellTLS(raw)
		}
		_ = raw.Close()
		return
	}
	t.handshakes.WithLabelValues(handshakeDone).Inc()
	_ = raw.SetDeadline(time.Time{})
	if !t.hand(tlsConn{conn{secured}, secured}, nil) {
		_ = raw.Close()
	}
}

func failure(err error) string {
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && isHTTP(plain) {
		return handshakePlain
	}
	if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
		return handshakeTimeOut
	}
	return handshakeFailed
}

// isHTTP reports whether a client began with a request instead of a handshake.
func isHTTP(e tls.RecordHeaderError) bool {
	begun := string(e.RecordHeader[:])
	methods := []string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH"}
	return e.Conn != nil && slices.Contains(methods, begun)
}

// tellTLS answers a request that came without TLS.
func tellTLS(raw net.Conn) {
	p := newProblem(codeInvalidRequest, "this address is served over TLS: use https://")
	p.Errors = []fieldError{{"request", p.Detail}}
	p.RequestID = rand.Text()
	_ = raw.SetDeadline(time.Now().Add(drainTimeout))
	if _, err := raw.Write(p.raw()); err != nil {
		return
	}
	if half, ok := raw.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(raw, drainBytes)) // the client has its answer, or never will
	}
}

// tlsConn is a connection on which net/http sees that there is TLS.
type tlsConn struct {
	conn
	secured *tls.Conn
}

// ConnectionState is what net/http puts into Request.TLS.
func (c tlsConn) ConnectionState() tls.ConnectionState { return c.secured.ConnectionState() }
