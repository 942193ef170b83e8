package console

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"sluice/pipeline"
)

const (
	// liveEvery is how often a live page is looked at; what has not changed is not sent.
	liveEvery = 500 * time.Millisecond
	// liveLife is the longest that a stream lasts; its browser comes back by itself.
	liveLife = 10 * time.Minute
	// liveWrite is how long one write may take until the browser counts as gone.
	liveWrite = 10 * time.Second
	// liveHeartbeat is below every usual limit on idle connections.
	liveHeartbeat = 15 * time.Second
	// maxStreams bounds the streams of one api. A browser that gets none reloads the page instead.
	maxStreams = 100
)

// stream sends a part of a page whenever it has changed, until the browser goes, its session ends, or the server does.
// look renders the part; the stores are asked as often as for one browser, however many there are.
func (q *request) stream(look func(ctx context.Context) ([]byte, error)) error {
	select {
	case q.c.streams <- struct{}{}:
		defer func() { <-q.c.streams }()
	default:
		return pipeline.Errorf(pipeline.KindOverloaded, "%d pages are live, and no more at a time", maxStreams)
	}
	control := http.NewResponseController(q.w)
	if err := control.SetReadDeadline(time.Time{}); err != nil { // the request is here; a limit that passes would end it
		return err
	}
	q.w.Header().Set("Content-Type", "text/event-stream")
	q.w.Header().Set("X-Accel-Buffering", "no") // what proxies of the nginx family go by
	q.status = http.StatusOK
	q.w.WriteHeader(http.StatusOK)
	ctx, cancel := context.WithTimeout(q.Context(), liveLife)
	defer cancel()
	ticker := time.NewTicker(liveEvery)
	defer ticker.Stop()
	var last []byte
	var sent time.Time
	for {
		if _, _, err := q.c.identify(q.Request); err != nil && pipeline.KindOf(err) != pipeline.KindUnavailable {
			_ = q.send(control, "signed-out", nil) // it ends either way
			return nil
		}
		part, err := q.look(ctx, look)
		switch {
		case err != nil && ctx.Err() == nil:
			q.c.Log.Debug("a live page could not be read", "error", err)
		case err == nil && !bytes.Equal(part, last):
			if q.send(control, "part", part) != nil {
				return nil
			}
			last, sent = part, time.Now()
		case time.Since(sent) > liveHeartbeat:
			if q.send(control, "still", nil) != nil {
				return nil
			}
			sent = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-q.c.closing:
			return nil
		case <-ticker.C:
		}
	}
}

func (q *request) look(
	ctx context.Context, look func(ctx context.Context) ([]byte, error),
) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return look(ctx)
}

// send writes one event.
func (q *request) send(control *http.ResponseController, name string, data []byte) error {
	if err := control.SetWriteDeadline(time.Now().Add(liveWrite)); err != nil {
		return err
	}
	event := bytes.NewBufferString("event: " + name + "\n")
	for line := range bytes.Lines(data) {
		event.WriteString("data: ")
		event.Write(bytes.TrimRight(line, "\n"))
		event.WriteByte('\n')
	}
	if len(data) == 0 {
		event.WriteString("data:\n")
	}
	event.WriteByte('\n')
	if _, err := q.w.Write(event.Bytes()); err != nil {
		return err
	}
	return control.Flush()
}
