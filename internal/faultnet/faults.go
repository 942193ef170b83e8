package faultnet

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// faults are the current faults of the network. All connections share them.
type faults struct {
	mu            sync.Mutex // protects the rest
	delay         time.Duration
	thawed        chan struct{}      // closed unless frozen
	dropNext      int                // replies still to drop, of any request
	dropAnswering []*expectedRequest // replies still to drop, by the request they answer
	lost          int                // replies dropped so far
}

// expectedRequest describes future requests whose replies will be dropped.
type expectedRequest struct {
	text []byte // in lower case
	left int
}

func newFaults() faults {
	thawed := make(chan struct{})
	close(thawed)
	return faults{thawed: thawed}
}

// change runs do under the mutex.
func (f *faults) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *faults) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.thawed:
		f.thawed = make(chan struct{})
	default:
	}
}

func (f *faults) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.thawed:
	default:
		close(f.thawed)
	}
}

func (f *faults) dropReplyTo(text string, n int) {
	if n < 1 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropAnswering = append(f.dropAnswering, &expectedRequest{[]byte(strings.ToLower(text)), n})
}

// awaitThaw waits while the network is frozen. It returns false when the context ended first.
func (f *faults) awaitThaw(ctx context.Context) bool {
	for {
		f.mu.Lock()
		thawed := f.thawed
		f.mu.Unlock()
		select {
		case <-thawed:
			return ctx.Err() == nil
		case <-ctx.Done():
			return false
		}
	}
}

// awaitDelay waits for the delay of a slow network. It returns false when the context ended first.
func (f *faults) awaitDelay(ctx context.Context) bool {
	f.mu.Lock()
	delay := f.delay
	f.mu.Unlock()
	if delay <= 0 {
		return true
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// dropsReplyTo reports whether the reply to this request will be dropped, and counts it if so.
func (f *faults) dropsReplyTo(request []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.dropAnswering) == 0 {
		return false
	}
	request = bytes.ToLower(request)
	i := slices.IndexFunc(f.dropAnswering, func(a *expectedRequest) bool { return bytes.Contains(request, a.text) })
	if i < 0 {
		return false
	}
	if f.dropAnswering[i].left--; f.dropAnswering[i].left <= 0 {
		f.dropAnswering = slices.Delete(f.dropAnswering, i, i+1)
	}
	return true
}

// dropsReply reports whether the next reply will be dropped without regard to its request, and counts it if so.
func (f *faults) dropsReply() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropNext == 0 {
		return false
	}
	f.dropNext--
	return true
}
