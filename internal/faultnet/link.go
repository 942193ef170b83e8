package faultnet

import (
	"context"
	"net"
	"sync"
)

const (
	// pieceSize is how much is forwarded at once, in bytes.
	pieceSize = 64 << 10
	// searchedSize is how much of a request is kept to be searched, in bytes.
	searchedSize = 1 << 20
)

// link is one client's connection and the one to the server behind it.
type link struct {
	faults            *faults
	requests, replies framing
	ctx               context.Context // ends with the link
	cancel            context.CancelFunc

	mu             sync.Mutex // protects the two below
	client, server net.Conn   // server is nil until it is dialled
	under          []underWay // requests under way, oldest first

	watcher func(Exchange) bool // nil: messages pass in whatever pieces they come

	// Of the goroutine that forwards requests.
	request []byte // what has come of the current one
	// Of the goroutine that forwards replies.
	within bool   // in the middle of a reply
	losing bool   // and it is to be lost
	asked  []byte // the request that it answers; nil unless watched
	reply  []byte // what has come of it; only when watched
}

// underWay is a request that the server has not answered yet.
type underWay struct {
	loses   bool   // whether the reply will be lost
	request []byte // nil unless watched
}

func newLink(client net.Conn, f *faults, framings func() (requests, replies framing), watcher func(Exchange) bool) *link {
	l := &link{client: client, faults: f, watcher: watcher}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.requests, l.replies = framings()
	return l
}

// end breaks both connections, which ends whoever reads from them or writes to them.
func (l *link) end() {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// run forwards until the link ends.
func (l *link) run(target endpoint) {
	defer l.end()
	server, err := dial(l.ctx, target)
	if err != nil {
		l.faults.pass(l.ctx) // nobody hears of it through a frozen network
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
func (l *link) forwardRequests() {
	piece := make([]byte, pieceSize)
	for {
		n, err := l.client.Read(piece)
		if n > 0 && !l.sendOn(piece[:n]) {
			l.end()
			return
		}
		if err != nil {
			l.flushRequests()
			if !l.faults.pass(l.ctx) || closeWrite(l.server) != nil {
				l.end()
			}
			return
		}
	}
}

func (l *link) sendOn(piece []byte) bool {
	if !l.faults.pass(l.ctx) {
		return false
	}
	if l.watcher != nil {
		return l.sendWatched(piece)
	}
	l.note(piece)
	_, err := l.server.Write(piece)
	return err == nil
}

// note decides about the replies to the requests that end in this piece. The server has not seen them yet, so no reply
// comes before its decision.
func (l *link) note(piece []byte) {
	for len(piece) > 0 {
		n, ended := l.requests.next(piece)
		l.request = append(l.request, piece[:min(n, searchedSize-len(l.request))]...)
		piece = piece[n:]
		if !ended {
			return
		}
		loses := l.faults.losesAnswerTo(l.request)
		l.request = l.request[:0]
		l.mu.Lock()
		l.under = append(l.under, underWay{loses: loses})
		l.mu.Unlock()
	}
}

func (l *link) forwardReplies() {
	defer l.end()
	piece := make([]byte, pieceSize)
	for {
		n, err := l.server.Read(piece)
		if n > 0 && !l.answer(piece[:n]) {
			return
		}
		if err != nil {
			l.flushReplies()
			l.faults.pass(l.ctx) // the news of a server's end can't get through a frozen network either
			return
		}
	}
}

// answer forwards replies, up to the one that is lost. It returns false when the link is to end.
func (l *link) answer(piece []byte) bool {
	if !l.faults.dawdle(l.ctx) || !l.faults.pass(l.ctx) {
		return false
	}
	if l.watcher != nil {
		return l.answerWatched(piece)
	}
	for len(piece) > 0 {
		if !l.within {
			l.within, l.losing = true, l.loses(piece[0])
		}
		n, ended := l.replies.next(piece)
		if !l.losing {
			if _, err := l.client.Write(piece[:n]); err != nil {
				return false
			}
		}
		piece = piece[n:]
		l.within = !ended
		if ended && l.losing {
			l.faults.lostOne()
			return false
		}
	}
	return true
}

// loses decides about the reply that begins with this byte, and notes what it answers.
func (l *link) loses(first byte) bool {
	if !l.replies.counts(first) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var oldest underWay
	if len(l.under) > 0 {
		oldest, l.under = l.under[0], l.under[1:]
	}
	l.asked = oldest.request
	return oldest.loses || l.faults.losesReply()
}

func closeWrite(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return conn.Close()
	}
	return half.CloseWrite()
}
