package faultnet

// watchedSize bounds a request or a reply on a watched connection, in bytes: it is kept until it is complete. A longer one
// ends the connection.
const watchedSize = 16 << 20

// Moment is a moment in the life of a request.
type Moment string

// The moments at which a watcher is called.
const (
	Before Moment = "before" // the client has sent the whole request; the server has not seen a byte of it
	After  Moment = "after"  // the server has answered in full; the client has not seen a byte of it
)

// Exchange is a request at one of its moments.
type Exchange struct {
	Moment  Moment
	Request []byte // as in DropReplyTo; not to be changed
}

// Watch calls a function for every request on the connections that are made from now on, before the server sees it and
// again before the client sees the reply. The connection waits meanwhile, so the function may take its time, for instance to
// kill the client: its state is then exactly that between two steps. When it returns false the connection ends, and what was
// held back arrives nowhere. Other connections go on, and may call it at the same time. Close waits for it.
func (p *Proxy) Watch(watcher func(Exchange) (pass bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watcher = watcher
}

// sendWatched forwards whole requests, each after the watcher has let it pass.
func (l *connection) sendWatched(piece []byte) bool {
	for len(piece) > 0 {
		n, ended := l.requests.next(piece)
		if l.request = append(l.request, piece[:n]...); len(l.request) > watchedSize {
			return false
		}
		piece = piece[n:]
		if !ended {
			return true
		}
		request := l.request
		l.request = nil
		if !l.watcher(Exchange{Before, request}) {
			return false
		}
		l.mu.Lock()
		l.inFlight = append(l.inFlight, inFlightRequest{drop: l.faults.dropsReplyTo(request), request: request})
		l.mu.Unlock()
		if _, err := l.server.Write(request); err != nil {
			return false
		}
	}
	return true
}

// answerWatched forwards whole replies, each after the watcher has let it pass. It returns false when the link is to end.
func (l *connection) answerWatched(piece []byte) bool {
	for len(piece) > 0 {
		if !l.inReply {
			l.inReply, l.dropping = true, l.dropsReply(piece[0])
		}
		n, ended := l.replies.next(piece)
		if l.reply = append(l.reply, piece[:n]...); len(l.reply) > watchedSize {
			return false
		}
		piece = piece[n:]
		if !ended {
			return true
		}
		reply, asked := l.reply, l.answered
		l.inReply, l.reply, l.answered = false, nil, nil
		if l.dropping {
			l.faults.countLost()
			return false
		}
		if asked != nil && !l.watcher(Exchange{After, asked}) {
			return false
		}
		if _, err := l.client.Write(reply); err != nil {
			return false
		}
	}
	return true
}

// flushRequests passes on what came after the last whole request: a farewell that nobody answers.
func (l *connection) flushRequests() {
	if l.watcher != nil && len(l.request) > 0 {
		_, _ = l.server.Write(l.request) // the link ends anyway
	}
}

// flushReplies passes on what came after the last whole reply: why the server ends the connection.
func (l *connection) flushReplies() {
	if l.watcher != nil && len(l.reply) > 0 && !l.dropping {
		_, _ = l.client.Write(l.reply) // the link ends anyway
	}
}
