package limits

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// Connections bounds the connections of a listener. Those above a limit are reset: nothing is read from them, and
// nothing is written.
type Connections struct {
	Total     *Concurrent[string]       // all of them, under the key ""
	PerClient *Concurrent[netip.Prefix] // of one client that is no proxy
	Opened    *Limiter[netip.Prefix]    // how fast one client that is no proxy may open them
	Addresses *Addresses                // which knows the proxies
	Refused   func(because *Refusal)    // called for each that was refused
	// Held is how many that exceed a limit of their client are reset after one to two seconds only, which keeps that
	// client from dialling again at once. Others are reset as soon as they are accepted.
	Held int
}

// Listener returns l within the limits.
func (c Connections) Listener(l net.Listener) net.Listener {
	return &limitedListener{l, c, newHeld(c.Held)}
}

type limitedListener struct {
	net.Listener
	limits Connections
	held   *held
}

// Close closes the listener, and resets what is held.
func (l *limitedListener) Close() error {
	err := l.Listener.Close()
	l.held.release()
	return err
}

// Accept returns the next connection within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		leave, refused, hold := l.limits.enter(AddressOf(conn.RemoteAddr().String()))
		if refused == nil {
			return &limitedConn{Conn: conn, leave: sync.OnceFunc(leave)}, nil
		}
		l.limits.Refused(refused)
		if !hold || !l.held.keep(conn) {
			discard(conn)
		}
	}
}

// enter counts a connection, unless that would exceed a limit. One that exceeds a limit of its own client is to be
// held; one too many in all may be anybody's.
func (c Connections) enter(from netip.Addr) (leave func(), refused *Refusal, hold bool) {
	client := ClientOf(from)
	counted := !c.Addresses.IsProxy(from)
	if counted {
		if refused := c.Opened.Take(client, time.Now()); refused != nil {
			return nil, refused, true
		}
		if refused := c.PerClient.Enter(client); refused != nil {
			return nil, refused, true
		}
	}
	if refused := c.Total.Enter(""); refused != nil {
		if counted {
			c.PerClient.Leave(client)
		}
		return nil, refused, false
	}
	return func() {
		c.Total.Leave("")
		if counted {
			c.PerClient.Leave(client)
		}
	}, nil, false
}

// discard resets a connection, which leaves nothing behind in the kernel: no TIME_WAIT, no unread bytes.
func discard(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

type limitedConn struct {
	net.Conn
	leave func()
}

// Close closes the connection, which makes room for another.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

// CloseWrite lets net/http close the connection in the order that gets an answer to the client.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
