package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"sluice/pipeline"
)

const (
	// jwksRefresh is how often keys are fetched: a key that the issuer withdraws is trusted for so long at most.
	jwksRefresh = 5 * time.Minute
	// jwksSpacing is the least time between two fetches, whatever requests ask for: an issuer sees six a minute of each
	// api, however many unknown keys are named.
	jwksSpacing = 10 * time.Second
	// jwksPatience is how long a request waits for a fetch: well below the deadline of requests.
	jwksPatience = 2 * time.Second
	// jwksWaiting is how many requests may wait for a fetch at once; the others are answered at once, with 503.
	jwksWaiting = 256
	// The bounds of JWT_JWKS_MAX_AGE: less than three refreshes would turn a hiccup into an outage; more than a week
	// would trust a stolen key for longer than anybody remembers.
	minJWKSAge = 15 * time.Minute
	maxJWKSAge = 7 * 24 * time.Hour
)

// JWKSOptions say where an issuer publishes its keys. Refresh, Spacing and Patience are for tests.
type JWKSOptions struct {
	URL    string        // JWT_JWKS_URL
	MaxAge time.Duration // JWT_JWKS_MAX_AGE: how long keys are used that could not be fetched again
	Log    *slog.Logger  // nil: nothing is logged

	Refresh, Spacing, Patience time.Duration // 0: the usual ones
}

func (o *JWKSOptions) validate() error {
	if err := validateJWKSURL(o.URL); err != nil {
		return pipeline.Errorf(pipeline.KindInvalid, "JWT_JWKS_URL: %s", err)
	}
	if o.MaxAge < minJWKSAge || o.MaxAge > maxJWKSAge {
		return pipeline.Errorf(pipeline.KindInvalid, "JWT_JWKS_MAX_AGE %s: use %s to %s", o.MaxAge, minJWKSAge, maxJWKSAge)
	}
	return nil
}

// JWKS keeps the keys that an issuer publishes at a URL. One goroutine fetches them: regularly, and when a token names
// a key that is not there, or names none and is of no known one. While they can't be fetched, it keeps those that it
// has, up to a maximum age.
type JWKS struct {
	options    JWKSOptions
	algorithms []string
	fetcher    fetcher
	metrics    *Metrics
	now        func() time.Time
	wanted     chan struct{} // a request asks for a fetch

	mu        sync.Mutex // protects the rest
	keys      *keySet    // nil before the first success
	digest    [sha256.Size]byte
	fetchedAt time.Time     // the last success
	triedAt   time.Time     // the last attempt's beginning
	failure   error         // of the last attempt
	fetching  bool          // an attempt is under way
	round     chan struct{} // closed when the attempt under way, or the next one, has ended
	waiting   int
}

func newJWKS(o *TokenOptions) *JWKS {
	j := &JWKS{
		options: o.JWKS, algorithms: o.Algorithms, fetcher: newFetcher(o.JWKS.URL), metrics: o.Metrics, now: o.Now,
		wanted: make(chan struct{}, 1), round: make(chan struct{}),
	}
	for option, usual := range map[*time.Duration]time.Duration{
		&j.options.Refresh: jwksRefresh, &j.options.Spacing: jwksSpacing, &j.options.Patience: jwksPatience,
	} {
		if *option == 0 {
			*option = usual
		}
	}
	if j.options.Log == nil {
		j.options.Log = slog.New(slog.DiscardHandler)
	}
	return j
}

// Run fetches until the context ends. Until the first success, requests with tokens get ErrKeysUnavailable.
func (j *JWKS) Run(ctx context.Context) {
	for ctx.Err() == nil {
		j.attempt(ctx)
		spacing := time.NewTimer(j.options.Spacing)
		select {
		case <-ctx.Done():
		case <-spacing.C:
		}
		spacing.Stop()
		if j.failed() {
			continue // every j.options.Spacing
		}
		// Up to a tenth earlier, so that the apis of an installation do not ask all at once.
		next := time.NewTimer(j.options.Refresh - rand.N(j.options.Refresh/10+1))
		select {
		case <-ctx.Done():
		case <-j.wanted:
		case <-next.C:
		}
		next.Stop()
	}
}

// attempt fetches once, and ends the round.
func (j *JWKS) attempt(ctx context.Context) {
	began := j.now()
	j.mu.Lock()
	j.triedAt, j.fetching = began, true
	j.mu.Unlock()
	body, err := j.fetcher.fetch(ctx)
	var fetched *keySet
	if err == nil {
		fetched, err = j.read(body)
	}
	if ctx.Err() != nil {
		return
	}
	select {
	case <-j.wanted: // this attempt serves that request
	default:
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.log(err)
	if err == nil {
		// The same keys stay the same set, so that tokens need not be verified again.
		if digest := sha256.Sum256(body); j.keys == nil || !bytes.Equal(digest[:], j.digest[:]) {
			j.keys, j.digest = fetched, digest
		}
		j.fetchedAt = began
	}
	j.failure, j.fetching = err, false
	j.metrics.fetched(err, j.keys, began)
	close(j.round)
	j.round = make(chan struct{})
}

func (j *JWKS) read(body []byte) (*keySet, error) {
	keys, err := readKeys(body, j.algorithms, false)
	if err != nil {
		return nil, err
	}
	return &keySet{keys: keys}, nil
}

// log says when fetching begins to fail and when it works again. It must be called with the lock.
func (j *JWKS) log(err error) {
	switch {
	case err != nil && j.failure == nil:
		j.options.Log.Warn("the keys of buyers' tokens can't be fetched", "url", j.options.URL, "error", err,
			"those_in_use_since", j.fetchedAt, "used_for", j.options.MaxAge)
	case err == nil && j.failure != nil:
		j.options.Log.Info("the keys of buyers' tokens are fetched again", "url", j.options.URL)
	}
}

func (j *JWKS) failed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failure != nil
}

// usable must be called with the lock. It returns nil before the first success, and when the keys are too old.
func (j *JWKS) usable() *keySet {
	if j.now().Sub(j.fetchedAt) > j.options.MaxAge {
		return nil
	}
	return j.keys
}

// current implements keySource. Before the first fetch has ended it waits for it.
func (j *JWKS) current(ctx context.Context) (*keySet, error) {
	j.mu.Lock()
	keys := j.usable()
	j.mu.Unlock()
	if keys != nil {
		return keys, nil
	}
	return j.newer(ctx, nil)
}

// newer implements keySource. It has keys fetched unless that was done a moment ago, and waits for them for a while.
func (j *JWKS) newer(ctx context.Context, seen *keySet) (*keySet, error) {
	j.mu.Lock()
	if keys := j.usable(); keys != seen && keys != nil {
		j.mu.Unlock()
		return keys, nil
	}
	if !j.triedAt.IsZero() && !j.fetching && j.now().Sub(j.triedAt) < j.options.Spacing {
		defer j.mu.Unlock()
		return j.latest()
	}
	if j.waiting >= jwksWaiting {
		defer j.mu.Unlock()
		return nil, j.unavailable()
	}
	j.waiting++
	round := j.round
	j.mu.Unlock()

	select {
	case j.wanted <- struct{}{}:
	default: // another request has asked
	}
	patience := time.NewTimer(j.options.Patience)
	defer patience.Stop()
	inTime := false
	select {
	case <-round:
		inTime = true
	case <-patience.C:
	case <-ctx.Done():
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting--
	if !inTime {
		return nil, j.unavailable()
	}
	return j.latest()
}

// latest returns what the last attempt left. It must be called with the lock.
func (j *JWKS) latest() (*keySet, error) {
	if keys := j.usable(); keys != nil && j.failure == nil {
		return keys, nil
	}
	return nil, j.unavailable()
}

// unavailable must be called with the lock.
func (j *JWKS) unavailable() error {
	cause := ErrKeysUnavailable
	if j.failure != nil {
		cause = fmt.Errorf("%w: %w", ErrKeysUnavailable, j.failure)
	}
	return pipeline.Wrap(pipeline.KindUnavailable, cause,
		"the keys by which tokens are verified can't be fetched at the moment; nothing is known of this token")
}

// Usable returns nil while there are keys to verify tokens with, and pipeline.KindUnavailable otherwise.
func (j *JWKS) Usable(context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.usable() != nil:
		return nil
	case j.keys == nil:
		return pipeline.Wrap(pipeline.KindUnavailable, j.failure, "the keys of buyers' tokens were never fetched")
	default:
		return pipeline.Wrap(pipeline.KindUnavailable, j.failure, fmt.Sprintf(
			"the keys of buyers' tokens were fetched last at %s, more than JWT_JWKS_MAX_AGE (%s) ago",
			j.fetchedAt.UTC().Format(time.RFC3339), j.options.MaxAge))
	}
}

// Fetched returns nil unless the last attempt to fetch keys failed (pipeline.KindUnavailable).
func (j *JWKS) Fetched(context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failure == nil {
		return nil
	}
	message := "the keys of buyers' tokens can't be fetched"
	if j.usable() != nil {
		message += "; those of " + j.fetchedAt.UTC().Format(time.RFC3339) + " are used until " +
			j.fetchedAt.Add(j.options.MaxAge).UTC().Format(time.RFC3339)
	}
	return pipeline.Wrap(pipeline.KindUnavailable, j.failure, message)
}
