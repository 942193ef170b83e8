package lock

import (
	"context"
	"errors"
	"time"

	scripts "sluice/lua/lock"
)

// ErrNoOwner says that As was given to a lock that can't be entered again: only Mutex and FairMutex can.
var ErrNoOwner = errors.New("lock: only Mutex and FairMutex know owners: leave lock.As out")

// shares is one synchronizer that several may hold at once.
type sharedLock struct {
	client *Client
	key    string
}

func (s sharedLock) keys() scripts.ShareKeys {
	return scripts.ShareKeys{Shares: s.key, Queue: siblingKey(s.key, "queue"), Fence: siblingKey(s.key, "fence")}
}

// take is Lock and TryLock of all who take shares.
func (s sharedLock) take(ctx context.Context, share scripts.Share, patient bool, options []CallOption) (Hold, error) {
	o, ttl, err := s.client.lockOptions(options)
	if err != nil {
		return nil, err
	}
	if o.owner != (Owner{}) {
		return nil, ErrNoOwner
	}
	g, got, sent, err := s.acquire(ctx, share, patient, o.wait, ttl)
	if err != nil {
		return nil, err
	}
	l, err := s.client.newLease(ctx, g, got, sent, ttl, ttl, o.lease == 0)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// win waits for shares and returns the fence and when the call was sent that got them.
func (s sharedLock) acquire(ctx context.Context, share scripts.Share, patient bool, wait, ttl time.Duration) (*shareRecord, int64, time.Time, error) {
	if err := checkKey(s.key); err != nil {
		return nil, 0, time.Time{}, err
	}
	c, id := s.client, s.client.newID()
	g := &shareRecord{c, s.keys(), share, c.caller(Owner{}, id), ttl}
	q := acquisition{client: c, id: id, timeout: wait, blocking: patient, poll: ttl / renewPart, requester: g}
	got, sent, _, err := q.run(ctx)
	if share.Kind != scripts.Writer {
		got.Fence = 0
	}
	return g, got.Fence, sent, err
}

// shareGrip is what one call took.
type shareRecord struct {
	client *Client
	keys   scripts.ShareKeys
	share  scripts.Share
	who    scripts.Caller
	ttl    time.Duration
}

func (g *shareRecord) try(ctx context.Context, channel string, again bool) (scripts.Waiting, error) {
	who := g.who
	who.Channel, who.Again = channel, again
	return scripts.TakeShare(ctx, g.client.scripter(false), g.keys, who, g.share, g.ttl)
}

func (g *shareRecord) renewals() []scripts.Renewal {
	members := g.share.Members(g.who.Hold)
	holds := make([]scripts.Renewal, len(members))
	for i, member := range members {
		holds[i] = scripts.Renewal{Key: g.keys.Shares, Hold: member}
	}
	return holds
}

func (g *shareRecord) free(ctx context.Context) (held bool, err error) {
	return scripts.GiveShareBack(ctx, g.client.scripter(false), g.keys, g.who, g.share)
}

// leave gives up a wait; see mutexGrip.leave.
func (g *shareRecord) withdraw(ctx context.Context, channel string) {
	ctx = detached(ctx)
	who := g.who
	who.Channel = channel
	_, _ = scripts.GiveShareBack(ctx, g.client.scripter(false), g.keys, who, g.share)
}
