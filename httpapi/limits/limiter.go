package limits

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// maxKeys bounds the keys that a Limiter remembers: some 20 MB. One that was forgotten, because so many others came
// after it, begins anew.
const maxKeys = 100_000

// Refusal says which limit was reached, and when there is room again.
type Refusal struct {
	Policy string // the limiter's name
	Rate   Rate
	Wait   time.Duration // until the next request is let through, and a millisecond: bucket levels are rounded
}

// Limiter lets each key make so many requests in a time: a token bucket per key, which is full at first. A nil Limiter
// lets everything through. It may be used from many goroutines at once.
type Limiter[K comparable] struct {
	name string
	rate Rate

	mu      sync.Mutex // protects buckets
	buckets *simplelru.LRU[K, *rate.Limiter]
}

// NewLimiter returns a limiter, or nil for a Rate that limits nothing.
func NewLimiter[K comparable](name string, r Rate) *Limiter[K] {
	if r.Requests == 0 {
		return nil
	}
	buckets, _ := simplelru.NewLRU[K, *rate.Limiter](maxKeys, nil) // fails for sizes below 1 only
	return &Limiter[K]{name: name, rate: r, buckets: buckets}
}

// Take counts a request of a key. It returns nil when the request may go on. A refused request does not count, so that
// a client which is never idle still gets what it may have.
func (l *Limiter[K]) Take(key K, now time.Time) *Refusal {
	if l == nil {
		return nil
	}
	bucket := l.bucket(key, true)
	if bucket.AllowN(now, 1) {
		return nil
	}
	return l.refusal(bucket, now)
}

// Peek is what Take would return, and counts nothing.
func (l *Limiter[K]) Peek(key K, now time.Time) *Refusal {
	if l == nil {
		return nil
	}
	bucket := l.bucket(key, false)
	if bucket == nil || bucket.TokensAt(now) >= 1 {
		return nil
	}
	return l.refusal(bucket, now)
}

func (l *Limiter[K]) bucket(key K, create bool) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	bucket, found := l.buckets.Get(key)
	if !found && create {
		perSecond := float64(l.rate.Requests) / l.rate.Per.Seconds()
		bucket = rate.NewLimiter(rate.Limit(perSecond), l.rate.Requests)
		l.buckets.Add(key, bucket)
	}
	return bucket
}

func (l *Limiter[K]) refusal(bucket *rate.Limiter, now time.Time) *Refusal {
	missing := 1 - bucket.TokensAt(now)
	wait := time.Duration(missing / float64(bucket.Limit()) * float64(time.Second))
	return &Refusal{Policy: l.name, Rate: l.rate, Wait: wait + time.Millisecond}
}
