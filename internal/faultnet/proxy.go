package faultnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// dialLimit bounds the proxy's own connection to the server. The server is on this machine or next to it.
	dialLimit = 2 * time.Second
	// acceptBackoff keeps a listener that can't accept (no descriptors left) from spinning.
	acceptBackoff = 10 * time.Millisecond
)

// Proxy stands between clients and one server. It forwards everything until a fault is switched on; its methods are the
// switches, may be called from any goroutine, and apply to every connection, present and future. Close it.
type Proxy struct {
	self     endpoint
	dir      string // of the socket; empty for TCP
	listener net.Listener
	running  sync.WaitGroup // the accept loop and every connection

	mu          sync.Mutex // protects the rest
	service     service
	closed      bool
	cut         bool
	connections map[*connection]struct{}
	watcher     func(Exchange) bool
	faults      faults
}

// Listen starts a proxy in front of the server that a REDIS_URL or DATABASE_URL names (unix://, redis://, postgres://
// without TLS), or of an HTTP server (http://). The server need not run yet.
func Listen(serverURL string) (*Proxy, error) {
	s, err := parseService(serverURL)
	if err != nil {
		return nil, err
	}
	p := &Proxy{service: s, connections: map[*connection]struct{}{}, faults: newFaults()}
	if err := p.listen(); err != nil {
		return nil, fmt.Errorf("faultnet: %w", err)
	}
	p.running.Go(p.accept)
	return p, nil
}

func (p *Proxy) listen() error {
	var err error
	if p.service.socket == "" {
		if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		p.self = endpoint{"tcp", p.listener.Addr().String()}
		return nil
	}
	if p.dir, err = os.MkdirTemp("", "faultnet-"); err != nil {
		return err
	}
	p.self = endpoint{"unix", filepath.Join(p.dir, p.service.socket)}
	if p.listener, err = net.Listen("unix", p.self.address); err != nil {
		return errors.Join(err, os.RemoveAll(p.dir))
	}
	return nil
}

// URL is what a client uses in place of the server's URL.
func (p *Proxy) URL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.service.through(p.self)
}

// Retarget points the proxy at another server of the same kind: what a client sees of a failover, or of a server that
// came back at another address. Open connections break. The URL stays the same.
func (p *Proxy) Retarget(serverURL string) error {
	s, err := parseService(serverURL)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.service.target = s.target
	connections := p.openConnections()
	p.mu.Unlock()
	for _, c := range connections {
		c.end()
	}
	return nil
}

// Cut breaks every connection and refuses new ones, until Heal: they are accepted and closed at once, because a port
// that is released may not be available again. Requests in flight may or may not reach the server.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.cut = true
	connections := p.openConnections()
	p.mu.Unlock()
	for _, c := range connections {
		c.end()
	}
}

// Heal ends a Cut.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// Freeze stops everything from either side, until Thaw. Connections stay open, new ones are accepted and bytes are read
// from their senders, but nothing arrives: what a client sees of a host that lost its power. What was being forwarded
// when Freeze was called may still arrive.
func (p *Proxy) Freeze() { p.faults.freeze() }

// Thaw ends a Freeze. Everything that was stopped arrives now, including the requests of clients that have
// disconnected: they were in transit.
func (p *Proxy) Thaw() { p.faults.thaw() }

// Slow delays every reply. A reply of more than 64 KiB comes in several chunks, each of them delayed. 0 makes the
// network fast again.
func (p *Proxy) Slow(delay time.Duration) { p.faults.change(func() { p.faults.delay = delay }) }

// DropReplies drops the next n replies of the server, on any connection, replies to a client's first messages included.
// The server has done what was requested; the connection ends in place of the reply.
func (p *Proxy) DropReplies(n int) { p.faults.change(func() { p.faults.dropNext += max(n, 0) }) }

// DropReplyTo drops the replies to the next n requests that contain a text, in upper or lower case: a command's name,
// an argument. Requests already sent don't count. A request is what a client sends to get one reply: one command of a
// Redis pipeline; in Postgres everything up to the next Sync, so that a new statement's text is in the request that
// prepares it and its arguments are in the one that runs it. Only the first MiB of a request is searched. Several texts
// may be set at once.
func (p *Proxy) DropReplyTo(text string, n int) { p.faults.dropReplyTo(text, n) }

// KeepReplies cancels the rest of DropReplies and DropReplyTo, but not for requests that were already sent: the reply
// to a marked one is still dropped.
func (p *Proxy) KeepReplies() {
	p.faults.change(func() { p.faults.dropNext, p.faults.dropAnswering = 0, nil })
}

// Lost returns how many replies were dropped so far.
func (p *Proxy) Lost() (n int) {
	p.faults.change(func() { n = p.faults.lost })
	return n
}

// Connections returns how many connections are open now.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.connections)
}

// Close breaks every connection, stops listening and waits until all of the proxy's goroutines have ended. Calling it
// twice is harmless.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	connections := p.openConnections()
	p.mu.Unlock()
	err := p.listener.Close()
	for _, c := range connections {
		c.end()
	}
	p.running.Wait()
	if p.dir != "" {
		err = errors.Join(err, os.RemoveAll(p.dir))
	}
	return err
}

// openConnections needs mu.
func (p *Proxy) openConnections() []*connection {
	connections := make([]*connection, 0, len(p.connections))
	for c := range p.connections {
		connections = append(connections, c)
	}
	return connections
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		switch {
		case err == nil:
			p.serve(client)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(acceptBackoff)
		}
	}
}

// serve starts a connection for a new client, or refuses it.
func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.cut {
		refuse(client)
		return
	}
	c, target := newConnection(client, &p.faults, p.service.framing, p.watcher), p.service.target
	p.connections[c] = struct{}{}
	p.running.Go(func() {
		c.run(target)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.connections, c)
	})
}

// refuse sends a TCP client a reset, as from a port without a listener.
func refuse(client net.Conn) {
	if tcp, ok := client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = client.Close()
}

// dial connects to the server.
func dial(ctx context.Context, to endpoint) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	return new(net.Dialer).DialContext(ctx, to.network, to.address)
}
