package faultnet

// watchedSize bounds a request or a reply on a watched connection, in bytes: it is kept until it is complete. A longer
// one ends the connection.
const watchedSize = 16 << 20

// Moment is a moment in the life of a request.
type Moment string

// The moments at which a watcher is called.
const (
	Before Moment = "before" // the client has sent the whole request; the server has received none of it
	After  Moment = "after"  // the server has replied in full; the client has received none of it
)

// Exchange is a request at one of its moments.
type Exchange struct {
	Moment  Moment
	Request []byte // as in DropReplyTo; read-only
}

// Watch calls a function for every request on the connections that are made from now on, before the server sees it and
// again before the client sees the reply. The connection waits for the function, which may take its time, for instance
// to kill the client: its state is then exactly that between two steps. When it returns false the connection ends, and
// what was held back is lost. Other connections go on, and may call it at the same time. Close waits for it.
func (p *Proxy) Watch(watcher func(Exchange) (pass bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watcher = watcher
}

// forwardWatched forwards whole requests, each after the watcher has let it pass.
func (c *connection) forwardWatched(chunk []byte) bool {
	for len(chunk) > 0 {
		n, ended := c.requests.next(chunk)
		if c.request = append(c.request, chunk[:n]...); len(c.request) > watchedSize {
			return false
		}
		chunk = chunk[n:]
		if !ended {
			return true
		}
		request := c.request
		c.request = nil
		if !c.watcher(Exchange{Before, request}) {
			return false
		}
		c.mu.Lock()
		c.inFlight = append(c.inFlight, inFlightRequest{drop: c.faults.dropsReplyTo(request), request: request})
		c.mu.Unlock()
		if _, err := c.server.Write(request); err != nil {
			return false
		}
	}
	return true
}

// flushRequests forwards what came after the last whole request, such as a closing message without a reply.
func (c *connection) flushRequests() {
	if c.watcher != nil && len(c.request) > 0 {
		_, _ = c.server.Write(c.request) // the connection ends anyway
	}
}

// flushReplies forwards what came after the last whole reply: why the server ends the connection.
func (c *connection) flushReplies() {
	if c.watcher != nil && len(c.reply) > 0 && !c.dropping {
		_, _ = c.client.Write(c.reply) // the connection ends anyway
	}
}
