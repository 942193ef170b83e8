package faultnet

import (
	"context"
	"net"
	"sync"
)

const (
	// chunkSize is how much is forwarded at once, in bytes.
	chunkSize = 64 << 10
	// searchedSize is how much of a request is kept for searching, in bytes.
	searchedSize = 1 << 20
)

// connection is one client's connection and the one to the server behind it.
type connection struct {
	faults            *faults
	requests, replies framing
	ctx               context.Context // ends with the connection
	cancel            context.CancelFunc

	mu             sync.Mutex        // protects the two below
	client, server net.Conn          // server is nil until it is dialled
	inFlight       []inFlightRequest // unanswered requests, oldest first

	watcher func(Exchange) bool // nil: messages are forwarded in any chunks

	// Of the goroutine that forwards requests.
	request []byte // the current one so far
	// Of the goroutine that forwards replies.
	inReply  bool   // in the middle of a reply
	dropping bool   // which is to be dropped
	answered []byte // the request that it answers; nil unless watched
	reply    []byte // the reply so far; only when watched
}

// inFlightRequest is a request that the server has not answered yet.
type inFlightRequest struct {
	drop    bool   // whether the reply will be dropped
	request []byte // nil unless watched
}

func newConnection(client net.Conn, f *faults, framings framings, watcher func(Exchange) bool) *connection {
	c := &connection{client: client, faults: f, watcher: watcher}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.requests, c.replies = framings()
	return c
}

// end closes both sides, which ends every read and write on them.
func (c *connection) end() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.client.Close()
	if c.server != nil {
		_ = c.server.Close()
	}
}

// run forwards until the connection ends.
func (c *connection) run(target endpoint) {
	defer c.end()
	server, err := dial(c.ctx, target)
	if err != nil {
		c.faults.awaitThaw(c.ctx) // a frozen network hides this from the client
		return
	}
	c.mu.Lock()
	c.server = server
	c.mu.Unlock()
	if c.ctx.Err() != nil { // ended while dialling: the deferred end closes the late side
		return
	}
	var both sync.WaitGroup
	both.Go(c.forwardRequests)
	both.Go(c.forwardReplies)
	both.Wait()
}

// forwardRequests keeps the other direction open when the client has closed: its requests still reach the server, which
// closes when it is done.
func (c *connection) forwardRequests() {
	chunk := make([]byte, chunkSize)
	for {
		n, err := c.client.Read(chunk)
		if n > 0 && !c.forwardRequest(chunk[:n]) {
			c.end()
			return
		}
		if err != nil {
			c.flushRequests()
			if !c.faults.awaitThaw(c.ctx) || closeWrite(c.server) != nil {
				c.end()
			}
			return
		}
	}
}

func (c *connection) forwardRequest(chunk []byte) bool {
	if !c.faults.awaitThaw(c.ctx) {
		return false
	}
	if c.watcher != nil {
		return c.forwardWatched(chunk)
	}
	c.recordRequests(chunk)
	_, err := c.server.Write(chunk)
	return err == nil
}

// recordRequests decides about the replies to the requests that end in this chunk. The server has not seen them yet, so
// no reply comes before its decision.
func (c *connection) recordRequests(chunk []byte) {
	for len(chunk) > 0 {
		n, ended := c.requests.next(chunk)
		c.request = append(c.request, chunk[:min(n, searchedSize-len(c.request))]...)
		chunk = chunk[n:]
		if !ended {
			return
		}
		loses := c.faults.dropsReplyTo(c.request)
		c.request = c.request[:0]
		c.mu.Lock()
		c.inFlight = append(c.inFlight, inFlightRequest{drop: loses})
		c.mu.Unlock()
	}
}

func (c *connection) forwardReplies() {
	defer c.end()
	chunk := make([]byte, chunkSize)
	for {
		n, err := c.server.Read(chunk)
		if n > 0 && !c.forwardReply(chunk[:n]) {
			return
		}
		if err != nil {
			c.flushReplies()
			c.faults.awaitThaw(c.ctx) // a server's end can't be seen through a frozen network either
			return
		}
	}
}

// forwardReply forwards replies, up to one that is dropped; a watched connection forwards whole ones, each after the
// watcher has let it pass. It returns false when the connection is to end.
func (c *connection) forwardReply(chunk []byte) bool {
	if !c.faults.awaitDelay(c.ctx) || !c.faults.awaitThaw(c.ctx) {
		return false
	}
	for len(chunk) > 0 {
		if !c.inReply {
			c.inReply, c.dropping = true, c.dropsReply(chunk[0])
		}
		n, ended := c.replies.next(chunk)
		part := chunk[:n]
		chunk = chunk[n:]
		if c.watcher != nil {
			if c.reply = append(c.reply, part...); len(c.reply) > watchedSize {
				return false
			}
			if !ended {
				return true
			}
			part, c.reply = c.reply, nil
		}
		c.inReply = !ended
		if c.dropping && ended {
			c.faults.change(func() { c.faults.lost++ })
			return false
		}
		if !c.dropping && !c.deliver(part) {
			return false
		}
	}
	return true
}

// deliver sends (a part of) a reply to the client, if the watcher lets it pass.
func (c *connection) deliver(reply []byte) bool {
	answered := c.answered
	c.answered = nil
	if answered != nil && !c.watcher(Exchange{After, answered}) {
		return false
	}
	_, err := c.client.Write(reply)
	return err == nil
}

// dropsReply decides about the reply that begins with this byte, and records what it answers.
func (c *connection) dropsReply(first byte) bool {
	if !c.replies.counts(first) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var oldest inFlightRequest
	if len(c.inFlight) > 0 {
		oldest, c.inFlight = c.inFlight[0], c.inFlight[1:]
	}
	c.answered = oldest.request
	return oldest.drop || c.faults.dropsReply()
}

func closeWrite(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return conn.Close()
	}
	return half.CloseWrite()
}
