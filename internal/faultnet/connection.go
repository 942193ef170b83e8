package faultnet

import (
	"context"
	"net"
	"sync"
)

const (
	// pieceSize is how much is forwarded at once, in bytes.
	chunkSize = 64 << 10
	// searchedSize is how much of a request is kept to be searched, in bytes.
	searchedSize = 1 << 20
)

// link is one client's connection and the one to the server behind it.
type connection struct {
	faults            *faults
	requests, replies framing
	ctx               context.Context // ends with the link
	cancel            context.CancelFunc

	mu             sync.Mutex // protects the two below
	client, server net.Conn   // server is nil until it is dialled
	inFlight          []inFlightRequest // requests under way, oldest first

	watcher func(Exchange) bool // nil: messages pass in whatever pieces they come

	// Of the goroutine that forwards requests.
	request []byte // what has come of the current one
	// Of the goroutine that forwards replies.
	inReply bool   // in the middle of a reply
	dropping bool   // and it is to be lost
	answered  []byte // the request that it answers; nil unless watched
	reply  []byte // what has come of it; only when watched
}

// underWay is a request that the server has not answered yet.
type inFlightRequest struct {
	drop   bool   // whether the reply will be lost
	request []byte // nil unless watched
}

func newConnection(client net.Conn, f *faults, framings func() (requests, replies framing), watcher func(Exchange) bool) *connection {
	l := &connection{client: client, faults: f, watcher: watcher}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.requests, l.replies = framings()
	return l
}

// end breaks both connections, which ends whoever reads from them or writes to them.
func (l *connection) end() {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// run forwards until the link ends.
func (l *connection) run(target endpoint) {
	defer l.end()
	server, err := dial(l.ctx, target)
	if err != nil {
		l.faults.awaitThaw(l.ctx) // nobody hears of it through a frozen network
		return
	}
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	if l.ctx.Err() != nil { // ended while it was dialling: the deferred end closes what came too late
		return
	}
	var both sync.WaitGroup
	both.Go(l.forwardRequests)
	both.Go(l.forwardReplies)
	both.Wait()
}

// forwardRequests leaves the way back open when the client has left: what it asked for still reaches the server, and the
// server closes when it is done.
func (l *connection) forwardRequests() {
	piece := make([]byte, chunkSize)
	for {
		n, err := l.client.Read(piece)
		if n > 0 && !l.forwardRequest(piece[:n]) {
			l.end()
			return
		}
		if err != nil {
			l.flushRequests()
			if !l.faults.awaitThaw(l.ctx) || closeWrite(l.server) != nil {
				l.end()
			}
			return
		}
	}
}

func (l *connection) forwardRequest(piece []byte) bool {
	if !l.faults.awaitThaw(l.ctx) {
		return false
	}
	if l.watcher != nil {
		return l.sendWatched(piece)
	}
	l.recordRequests(piece)
	_, err := l.server.Write(piece)
	return err == nil
}

// note decides about the replies to the requests that end in this piece. The server has not seen them yet, so no reply
// comes before its decision.
func (l *connection) recordRequests(piece []byte) {
	for len(piece) > 0 {
		n, ended := l.requests.next(piece)
		l.request = append(l.request, piece[:min(n, searchedSize-len(l.request))]...)
		piece = piece[n:]
		if !ended {
			return
		}
		loses := l.faults.dropsReplyTo(l.request)
		l.request = l.request[:0]
		l.mu.Lock()
		l.inFlight = append(l.inFlight, inFlightRequest{drop: loses})
		l.mu.Unlock()
	}
}

func (l *connection) forwardReplies() {
	defer l.end()
	piece := make([]byte, chunkSize)
	for {
		n, err := l.server.Read(piece)
		if n > 0 && !l.forwardReply(piece[:n]) {
			return
		}
		if err != nil {
			l.flushReplies()
			l.faults.awaitThaw(l.ctx) // the news of a server's end can't get through a frozen network either
			return
		}
	}
}

// answer forwards replies, up to the one that is lost. It returns false when the link is to end.
func (l *connection) forwardReply(piece []byte) bool {
	if !l.faults.awaitDelay(l.ctx) || !l.faults.awaitThaw(l.ctx) {
		return false
	}
	if l.watcher != nil {
		return l.answerWatched(piece)
	}
	for len(piece) > 0 {
		if !l.inReply {
			l.inReply, l.dropping = true, l.dropsReply(piece[0])
		}
		n, ended := l.replies.next(piece)
		if !l.dropping {
			if _, err := l.client.Write(piece[:n]); err != nil {
				return false
			}
		}
		piece = piece[n:]
		l.inReply = !ended
		if ended && l.dropping {
			l.faults.countLost()
			return false
		}
	}
	return true
}

// loses decides about the reply that begins with this byte, and notes what it answers.
func (l *connection) dropsReply(first byte) bool {
	if !l.replies.counts(first) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var oldest inFlightRequest
	if len(l.inFlight) > 0 {
		oldest, l.inFlight = l.inFlight[0], l.inFlight[1:]
	}
	l.answered = oldest.request
	return oldest.drop || l.faults.dropsReply()
}

func closeWrite(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return conn.Close()
	}
	return half.CloseWrite()
}
