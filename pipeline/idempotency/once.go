package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

const (
	// Lease is how long a try may be at it before another may take over. It is longer than any request may last; a
	// command that lasts longer, such as the repair of a big sale, goes on unless somebody repeats it meanwhile.
	Lease = 40 * time.Second
	// waitLimit is how long a second request waits for the first, and waitStep between two looks.
	waitLimit, waitStep = 5 * time.Second, 50 * time.Millisecond
	// endTimeout bounds the note of how a try ended, whatever became of its request.
	endTimeout = 3 * time.Second
)

// Store keeps keys and their answers.
type Store interface {
	// ClaimRequest claims a key, or returns the answer that it has. Errors: ErrReused, ErrInUse, KindUnavailable.
	ClaimRequest(ctx context.Context, r Request) (Claim, *Answer, error)
	// AnswerRequest keeps an answer.
	AnswerRequest(ctx context.Context, c Claim, a Answer) error
	// ReleaseRequest ends a try without an answer. With forget the key is as if it had not been used, unless something was
	// changed.
	ReleaseRequest(ctx context.Context, c Claim, forget bool) error
	// PruneRequests drops up to limit keys that were kept for long enough, and returns how many.
	PruneRequests(ctx context.Context, limit int) (int, error)
}

// Verdict says what becomes of a key after a try.
type Verdict int

// The verdicts.
const (
	Final  Verdict = iota // the key answers so from now on
	Repeat                // it is not known, or only for now, that it did not work: the same request may be tried again
	Forget                // the request could not be meant: nothing was done, and the key is free
)

// Service does what is asked for under a key once.
type Service struct {
	store Store
	log   *slog.Logger
}

// New returns a Service over a store.
func New(store Store, log *slog.Logger) *Service { return &Service{store: store, log: log} }

// Once does something, or returns the answer that the request got before. A second request at the same time waits for
// the first, for some seconds. do gets a context that carries the claim; its error is returned as it is. Errors
// besides: ErrReused, ErrInUse, KindUnavailable.
func (s *Service) Once(
	ctx context.Context, r Request, do func(context.Context) (Answer, Verdict, error),
) (answer Answer, repeated bool, err error) {
	claim, known, err := s.claim(ctx, r)
	if err != nil {
		return Answer{}, false, err
	}
	if known != nil {
		return *known, true, nil
	}
	verdict := Repeat // of a panic, too
	defer func() { s.end(ctx, claim, answer, verdict) }()
	answer, verdict, err = do(With(ctx, claim))
	return answer, false, err
}

func (s *Service) claim(ctx context.Context, r Request) (Claim, *Answer, error) {
	until := time.Now().Add(waitLimit)
	for {
		claim, known, err := s.store.ClaimRequest(ctx, r)
		if !errors.Is(err, ErrInUse) || time.Now().After(until) {
			return claim, known, err
		}
		select {
		case <-ctx.Done():
			return claim, known, err
		case <-time.After(waitStep):
		}
	}
}

// end notes how a try ended. Where it can't, the next try finds out: it sees what was changed.
func (s *Service) end(ctx context.Context, c Claim, a Answer, v Verdict) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	var err error
	if v == Final {
		err = s.store.AnswerRequest(ctx, c, a)
	} else {
		err = s.store.ReleaseRequest(ctx, c, v == Forget)
	}
	if err != nil {
		s.log.Warn("the answer to a request with an idempotency key was not kept", "error", err)
	}
}
