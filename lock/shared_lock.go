package lock

import (
	"context"
	"errors"
	"time"

	scripts "sluice/lua/lock"
)

// ErrNoOwner is returned when As is given to a lock that is not re-entrant: only Mutex and FairMutex are.
var ErrNoOwner = errors.New("lock: only Mutex and FairMutex know owners: leave lock.As out")

// sharedLock is one synchronizer that several may hold at once.
type sharedLock struct {
	client *Client
	key    string
}

func (s sharedLock) keys() scripts.ShareKeys {
	return scripts.ShareKeys{Shares: s.key, Queue: siblingKey(s.key, "queue"), Fence: siblingKey(s.key, "fence")}
}

// take implements Lock and TryLock of all shared locks.
func (s sharedLock) take(ctx context.Context, share scripts.Share, blocking bool, options []CallOption) (Hold, error) {
	o, ttl, err := s.client.lockOptions(options)
	if err != nil {
		return nil, err
	}
	if o.owner != (Owner{}) {
		return nil, ErrNoOwner
	}
	r, won, err := s.acquire(ctx, share, blocking, o.wait, ttl)
	if err != nil {
		return nil, err
	}
	l, err := s.client.newLease(ctx, r, won, ttl, o.lease == 0)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// acquire waits for shares and returns their record.
func (s sharedLock) acquire(
	ctx context.Context, share scripts.Share, blocking bool, wait, ttl time.Duration,
) (*shareRecord, grant, error) {
	if err := checkKey(s.key); err != nil {
		return nil, grant{}, err
	}
	c, id := s.client, s.client.newID()
	r := &shareRecord{c, s.keys(), share, c.caller(Owner{}, id), ttl}
	q := acquisition{client: c, id: id, timeout: wait, blocking: blocking, poll: ttl / renewPart, requester: r}
	won, err := q.run(ctx)
	if share.Kind != scripts.Writer {
		won.fence = 0
	}
	return r, won, err
}

// shareRecord is what one call took.
type shareRecord struct {
	client *Client
	keys   scripts.ShareKeys
	share  scripts.Share
	who    scripts.Caller
	ttl    time.Duration
}

func (r *shareRecord) try(ctx context.Context, channel string, again bool) (scripts.AcquireReply, error) {
	who := r.who
	who.Channel, who.MayBeQueued = channel, again
	return scripts.AcquireShare(ctx, r.client.scripter(false), r.keys, who, r.share, r.ttl)
}

func (r *shareRecord) renewals() []scripts.Renewal {
	members := r.share.Members(r.who.Hold)
	holds := make([]scripts.Renewal, len(members))
	for i, member := range members {
		holds[i] = scripts.Renewal{Key: r.keys.Shares, Hold: member}
	}
	return holds
}

func (r *shareRecord) free(ctx context.Context, channel string) (held bool, err error) {
	who := r.who
	who.Channel = channel
	return scripts.ReleaseShare(ctx, r.client.scripter(false), r.keys, who, r.share)
}
