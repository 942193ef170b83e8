package loadgen

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	bufferSize  = 8 << 10 // of one connection's reader; an answer's head fits into it
)

// connection is one kept connection to the server. It is opened again when it was lost, or the server has closed it.
type connection struct {
	to       target
	deadline time.Duration
	reader   *bufio.Reader
	request  []byte // the buffer of the request under way

	mu     sync.Mutex // protects conn and closed: the end of a load closes them from another goroutine
	conn   net.Conn   // nil: not open
	closed bool       // for good
}

func newConnection(to target, deadline time.Duration) *connection {
	return &connection{to: to, deadline: deadline, reader: bufio.NewReaderSize(nil, bufferSize)}
}

// open connects, unless that is done already.
func (c *connection) open(ctx context.Context) error {
	if c.current() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var conn net.Conn
	var err error
	if c.to.secure {
		conn, err = new(tls.Dialer).DialContext(ctx, "tcp", c.to.addr)
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", c.to.addr)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close() // nothing was sent on it
		return net.ErrClosed
	}
	c.conn = conn
	c.reader.Reset(conn)
	return nil
}

func (c *connection) current() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

// drop closes a connection that can't be used further; the next request opens another.
func (c *connection) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close() // it is lost already, or all is answered
		c.conn = nil
	}
}

// close ends the connection for good, and with it the call that waits on it.
func (c *connection) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.drop()
}

// send sends one request and reads its answer, within the deadline.
func (c *connection) send(ctx context.Context, order template, seed, buyer uint64) (answer, error) {
	if err := c.open(ctx); err != nil {
		return answer{}, err
	}
	a, err := c.exchange(order, seed, buyer)
	if err != nil || a.last {
		c.drop()
	}
	return a, err
}

func (c *connection) exchange(order template, seed, buyer uint64) (answer, error) {
	conn := c.current()
	if conn == nil {
		return answer{}, net.ErrClosed
	}
	if err := conn.SetDeadline(time.Now().Add(c.deadline)); err != nil {
		return answer{}, err
	}
	c.request = order.fill(c.request, seed, buyer)
	if _, err := conn.Write(c.request); err != nil {
		return answer{}, err
	}
	return readAnswer(c.reader)
}
