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
	// acceptPause keeps a listener that can't accept (no descriptors left) from turning hot.
	acceptBackoff = 10 * time.Millisecond
)

// Proxy stands between clients and one server. It forwards until told otherwise; its methods are the switches, may be
// called from any goroutine, and hold for every connection, present and future. Close it.
type Proxy struct {
	self     endpoint
	dir      string // of the socket; empty for TCP
	listener net.Listener
	running  sync.WaitGroup // the accept loop and every link

	mu      sync.Mutex // protects the rest
	service service
	closed  bool
	cut     bool
	connections   map[*connection]struct{}
	watcher func(Exchange) bool
	faults  faults
}

// Listen starts a proxy before the server that a REDIS_URL or DATABASE_URL names (unix://, redis://, postgres:// without
// TLS), or before an HTTP server (http://). The server need not run yet.
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

// URL is what a client is given in place of the server's.
func (p *Proxy) URL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.service.through(p.self)
}

// Retarget puts the proxy before another server of the same kind: what a client sees of a failover, or of a server that came
// back at another address. Open connections break. The URL stays as it is.
func (p *Proxy) Retarget(serverURL string) error {
	s, err := parseService(serverURL)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.service.target = s.target
	links := p.openConnections()
	p.mu.Unlock()
	for _, l := range links {
		l.end()
	}
	return nil
}

// Cut breaks every connection and refuses new ones, until Heal: they are accepted and closed at once, because a port that
// is given up may not be had back. Requests under way may or may not reach the server.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.cut = true
	links := p.openConnections()
	p.mu.Unlock()
	for _, l := range links {
		l.end()
	}
}

// Heal ends a Cut.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// Freeze holds back whatever comes from either side, until Thaw. Connections stay open, new ones are accepted and bytes
// are taken from whoever sends them, but nothing arrives: what a client sees of a host that lost its power. What was being
// forwarded when Freeze was called may still arrive.
func (p *Proxy) Freeze() { p.faults.freeze() }

// Thaw ends a Freeze. All that was held back arrives now, the requests of clients that left meanwhile included: they were
// on their way.
func (p *Proxy) Thaw() { p.faults.thaw() }

// Slow holds every reply back for a while. A reply of more than 64 KiB comes in several pieces, each of them held back.
// 0 makes the network fast again.
func (p *Proxy) Slow(delay time.Duration) { p.faults.slow(delay) }

// DropReplies loses the next n replies of the server, on whatever connection they come, replies to a client's greeting
// included. The server has done what it was asked; the connection ends in place of the reply.
func (p *Proxy) DropReplies(n int) { p.faults.dropReplies(n) }

// DropReplyTo loses the replies to the next n requests that contain a text, whatever the case of its letters: a command's
// name, an argument. Requests already sent don't count. A request is what a client sends to get one reply: one command of
// a Redis pipeline; in Postgres all up to the next Sync, so that a new statement's text is in the request that prepares it
// and its arguments are in the one that runs it. Only the first MiB of a request is searched. Several texts may be waited
// for at once.
func (p *Proxy) DropReplyTo(text string, n int) { p.faults.dropReplyTo(text, n) }

// KeepReplies takes back what is left of DropReplies and DropReplyTo. Requests that were sent before don't count: the reply to
// one that was marked is lost all the same.
func (p *Proxy) KeepReplies() { p.faults.cancelDrops() }

// Lost is how many replies were lost so far.
func (p *Proxy) Lost() int { return p.faults.lostCount() }

// Connections is how many connections are open now.
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
	links := p.openConnections()
	p.mu.Unlock()
	err := p.listener.Close()
	for _, l := range links {
		l.end()
	}
	p.running.Wait()
	if p.dir != "" {
		err = errors.Join(err, os.RemoveAll(p.dir))
	}
	return err
}

// openLinks needs mu.
func (p *Proxy) openConnections() []*connection {
	links := make([]*connection, 0, len(p.connections))
	for l := range p.connections {
		links = append(links, l)
	}
	return links
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

// take starts a link for a new client, or turns it away.
func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.cut {
		refuse(client)
		return
	}
	l, target := newConnection(client, &p.faults, p.service.framing, p.watcher), p.service.target
	p.connections[l] = struct{}{}
	p.running.Go(func() {
		l.run(target)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.connections, l)
	})
}

// refuse lets a TCP client see a reset, as from a port where nobody listens.
func refuse(client net.Conn) {
	if tcp, ok := client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = client.Close()
}

// dial connects a link to the server.
func dial(ctx context.Context, to endpoint) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	return new(net.Dialer).DialContext(ctx, to.network, to.address)
}
