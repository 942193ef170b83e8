package limits

import (
	"sync"
	"time"
)

// Concurrent lets each key have so many of something at once. A nil Concurrent lets everything through. It may be used
// from many goroutines at once.
type Concurrent[K comparable] struct {
	name string
	most int

	mu   sync.Mutex // protects have
	have map[K]int  // never 0
}

// NewConcurrent returns a Concurrent, or nil where most is 0.
func NewConcurrent[K comparable](name string, most int) *Concurrent[K] {
	if most == 0 {
		return nil
	}
	return &Concurrent[K]{name: name, most: most, have: map[K]int{}}
}

// Enter counts one more of a key; nil: it may begin, and Leave must be called at its end.
func (c *Concurrent[K]) Enter(key K) *Refusal {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.have[key] >= c.most {
		return &Refusal{Policy: c.name, Rate: Rate{Requests: c.most}, Wait: time.Second}
	}
	c.have[key]++
	return nil
}

// Leave counts one less.
func (c *Concurrent[K]) Leave(key K) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.have[key]--; c.have[key] <= 0 {
		delete(c.have, key)
	}
}
