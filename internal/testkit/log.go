package testkit

import (
	"bytes"
	"sync"
)

// Log is a log that many goroutines write, and that a test reads while it grows. Its zero value is empty.
type Log struct {
	mu  sync.Mutex // protects the buffer
	buf bytes.Buffer
}

// Write appends to the log. It never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns all that was written up to now.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
