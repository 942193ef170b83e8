package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/pipeline"
	"sluice/pipeline/notification"
	"sluice/pipeline/waitlist"
)

const (
	defaultHeartbeat = 15 * time.Second // below every usual limit on idle connections
	// streamLimit is the longest that a stream lasts; its client comes back, and is authenticated again.
	streamLimit = time.Hour
	// eventTimeout is how long one write may take until its client counts as gone. A few hundred bytes take
	// that long only on a network that has stopped.
	eventTimeout = 10 * time.Second
	// eventRetryMS is how long a client waits before it comes back.
	eventRetryMS = 1000
)

var (
	eventStream = []string{"text/event-stream"}
	unbuffered  = []string{"no"}
	closing     = []string{"close"}
)

// Streams is the streams of events that are open. They take their connections over from the server, because what it
// keeps for each request in progress (buffers, two goroutines with deep stacks) is four times what a stream needs. So
// the server does not wait for them when it shuts down: Wait does. They end when their hub ends. The zero value is
// ready.
type Streams struct{ running sync.WaitGroup }

// Wait returns when no stream is open any more. The server must have stopped before, so that none begins.
func (s *Streams) Wait() { s.running.Wait() }

// stream is one client's stream.
type stream struct {
	conn      net.Conn
	watch     *notification.Watch
	end       func() // of the watch, and of what counts it
	sale      *pipeline.Sale
	order     waitlist.Order // as it was last sent
	heartbeat time.Duration

	// look finds the order again while it has no row; nil where the sale has no waitlist, so that it can only be queued.
	look func(context.Context) (waitlist.Order, error)
}

// begin answers a request with a stream, which goes on after the handler has returned.
func (s *Streams) begin(c echo.Context, one *stream, seen int) error {
	header := streamHeader(c.Response().Header().Clone())
	conn, _, err := http.NewResponseController(c.Response()).Hijack()
	if err != nil {
		one.end()
		return err
	}
	c.Response().Status, c.Response().Committed = http.StatusOK, true // for the log and the metrics
	one.conn = conn
	head := one.head(header, seen)
	s.running.Go(func() { one.run(head) })
	return nil
}

// streamHeader adds what makes an answer a stream that no proxy buffers.
func streamHeader(h http.Header) http.Header {
	h[headerContentType] = eventStream
	h["X-Accel-Buffering"] = unbuffered // what proxies of the nginx family go by
	return h
}

// head is sent first: the answer's own head and, unless the client has seen it, the order as it is. A client that has
// seen a version that we do not know (Postgres was restored from a backup) gets the current one. Without a length the
// answer ends with its connection.
func (s *stream) head(header http.Header, seen int) []byte {
	header["Connection"] = closing
	header["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 200 OK\r\n")
	_ = header.Write(&head) // memory takes everything
	fmt.Fprintf(&head, "\r\nretry: %d\n\n", eventRetryMS)
	if s.order.Version != seen {
		head.Write(s.event())
	}
	return head.Bytes()
}

// run sends events until the order is final, the client is gone, the server stops or the stream has lasted long enough.
// That a client is gone shows at a write: the second heartbeat at the latest.
func (s *stream) run(head []byte) {
	defer func() { _ = s.conn.Close() }() // all was sent that can be
	defer s.end()
	if !s.write(head) {
		return
	}
	beat, end := time.NewTicker(s.heartbeat), time.NewTimer(streamLimit)
	defer beat.Stop()
	defer end.Stop()
	for !s.order.Final() {
		select {
		case newer, open := <-s.watch.Changes():
			if !open {
				return
			}
			if newer.Version <= s.order.Version {
				continue // the order read at the beginning was ahead of the watch
			}
			s.order = waitlist.Order{Order: newer}
			if !s.write(s.event()) {
				return
			}
			beat.Reset(s.heartbeat)
		case <-s.watch.Hints():
			if !s.refresh(nil) {
				return
			}
		case <-beat.C:
			if !s.refresh(heartbeat) {
				return
			}
		case <-end.C:
			return
		}
	}
}

// refresh looks at an order that has no row, and sends what has changed of it, or else what the caller gives. So a
// buyer who waits sees the place in the list at each heartbeat. It returns false when the stream is over, also because
// the order is not found: a client that comes back is told so.
func (s *stream) refresh(otherwise []byte) bool {
	if s.look == nil || s.order.Version > 0 {
		return s.write(otherwise)
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	newer, err := s.look(ctx)
	if pipeline.KindOf(err) == pipeline.KindNotFound {
		return false
	}
	if err != nil || newer.Status == s.order.Status && newer.Position == s.order.Position {
		return s.write(otherwise)
	}
	s.order = newer
	return s.write(s.event())
}

var heartbeat = []byte(":\n\n")

// event is the order's status as an event. JSON has no line breaks, so it fits one data line. While the buyer waits it
// has no id: a client that comes back gets the place as it is then.
func (s *stream) event() []byte {
	body, err := json.Marshal(viewTracked(s.sale, &s.order))
	if err != nil {
		return nil // strings and a number are always JSON
	}
	if s.order.Version < 0 {
		return fmt.Appendf(nil, "event: status\ndata: %s\n\n", body)
	}
	return fmt.Appendf(nil, "id: %d\nevent: status\ndata: %s\n\n", s.order.Version, body)
}

// write reports whether the client can still be written to.
func (s *stream) write(text []byte) bool {
	if s.conn.SetWriteDeadline(time.Now().Add(eventTimeout)) != nil {
		return false
	}
	_, err := s.conn.Write(text) // nothing to write is no failure
	return err == nil
}
