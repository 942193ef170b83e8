package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// MaxServers bounds a quorum: each is asked with every lock.
	MaxServers = 15
	// voteTimeout is how long one server may take to vote, as a part of the lease: one that is dead must not use up the
	// lease that the others gave.
	votePart = 4
	// votePause is the longest pause before the next vote, at first; it doubles up to a tenth of the lease. It is random,
	// so that two who split the votes don't split them again.
	voteBackoff = 20 * time.Millisecond
)

// Servers are independent Redis servers that vote (RedLock): no replicas of each other, no nodes of one cluster, each on its own
// machine.
type Servers struct{ clients []*Client }

// Quorum makes a quorum of the clients of 1 to MaxServers independent servers, an odd number of them. All have the same TTL,
// which is also the longest lease.
func Quorum(clients ...*Client) Servers { return Servers{clients} }

// QuorumMutex is a lock that is held while a majority of servers gives it. It survives the death of a minority.
//
//   - A server votes only if it has been up for longer than a lease may last: one that lost its memory has forgotten
//     only what is over (delayed restart). This is by the server's uptime; one that is flushed without a restart is not noticed.
//   - Whoever gets no majority frees what he got, and tries again after a random pause. There is no queue and no fairness.
//   - Renewal asks servers again that have no lock of ours, so a minority that failed for a while is mended.
//
// Not promised: the same as for one server, a paused holder and clocks that run apart by more than a hundredth. And there
// is no fence, since clocks of several servers give no common order: where a store can check one, a Mutex on one server with a
// fence is the stronger lock. A quorum only makes it rarer that a server's death lets two in.
type QuorumMutex struct {
	servers Servers
	key     string
}

// Mutex returns the lock of a key on these servers.
func (s Servers) Mutex(key string) QuorumMutex { return QuorumMutex{s, key} }

var _ Locker = QuorumMutex{}

// Lock waits until it has a majority; see Locker. Servers that fail count as those that refuse.
func (m QuorumMutex) Lock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.take(ctx, true, options)
}

// TryLock votes once. ErrNotAcquired means that no majority was had; errors of servers are in its chain.
func (m QuorumMutex) TryLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.take(ctx, false, options)
}

func (m QuorumMutex) take(ctx context.Context, patient bool, options []CallOption) (Hold, error) {
	if err := errors.Join(m.servers.check(), checkKey(m.key)); err != nil {
		return nil, err
	}
	clients := m.servers.clients
	o, ttl, err := clients[0].lockOptions(options)
	if err != nil {
		return nil, err
	}
	switch {
	case ttl > clients[0].ttl:
		return nil, fmt.Errorf("%w: lease %s: a quorum's is at most the clients' TTL, %s", ErrBadTTL, ttl, clients[0].ttl)
	case o.owner != (Owner{}):
		return nil, ErrNoOwner
	}
	waiting := ctx
	if o.wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, o.wait)
		defer cancel()
	}
	v := election{QuorumMutex: m, work: ctx, ttl: ttl, o: lockOptions{owner: NewOwner(), lease: o.lease, strict: true}}
	return v.lock(waiting, patient)
}

func (s Servers) check() error {
	n := len(s.clients)
	if n < 1 || n > MaxServers || n%2 == 0 {
		return fmt.Errorf("%w: %d servers: use an odd number, 1 to %d", ErrBadCount, n, MaxServers)
	}
	for _, c := range s.clients {
		if c.cluster {
			return errors.New("lock: a quorum takes clients of single servers, not of a cluster")
		}
		if c.ttl != s.clients[0].ttl {
			return fmt.Errorf("%w: the clients of a quorum have %s and %s: use one TTL", ErrBadTTL, s.clients[0].ttl, c.ttl)
		}
	}
	return nil
}

// vote is one call of Lock.
type election struct {
	QuorumMutex
	work context.Context // of the holder
	ttl  time.Duration
	o    lockOptions // on each server
}

func (v *election) lock(ctx context.Context, patient bool) (Hold, error) {
	longest := voteBackoff
	for {
		for _, c := range v.servers.clients {
			if c.closed() {
				return nil, ErrClosed
			}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: the wait is over: %w", ErrNotAcquired, context.Cause(ctx))
		}
		h, err := v.round(ctx)
		if err == nil || !patient {
			return h, err
		}
		pause := time.NewTimer(rand.N(longest) + time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
		case <-v.servers.clients[0].closing.Done():
		}
		pause.Stop()
		longest = max(min(2*longest, v.ttl/10), voteBackoff)
	}
}

// once asks all servers at the same time.
func (v *election) round(ctx context.Context) (Hold, error) {
	clients := v.servers.clients
	members, errs := make([]member, len(clients)), make([]error, len(clients))
	var calls sync.WaitGroup
	for i := range clients {
		calls.Go(func() {
			if l, err := v.request(ctx, i); err == nil {
				members[i] = l
			} else if !errors.Is(err, ErrNotAcquired) {
				errs[i] = fmt.Errorf("server %d: %w", i+1, err)
			}
		})
	}
	calls.Wait()
	g := newGroup(v.work, members, len(clients)/2+1)
	if _, good := g.alive(); !good {
		_, _ = g.forEach(func(m member) error { return m.Unlock(ctx) }) // what can't be freed ends by itself
		return nil, errors.Join(append([]error{ErrNotAcquired}, errs...)...)
	}
	if v.o.lease == 0 {
		v.repair(g)
	}
	return g, nil
}

// ask takes the lock on one server, if that may vote.
func (v *election) request(ctx context.Context, i int) (*lease, error) {
	c := v.servers.clients[i]
	ctx, cancel := context.WithTimeout(ctx, max(v.ttl/votePart, time.Millisecond))
	defer cancel()
	l, err := c.Mutex(v.key).leaseFor(ctx, v.work, false, v.o, v.ttl)
	if err != nil {
		return nil, err
	}
	// Asked afterwards: a server that is old enough now was the same when it gave the lock.
	if err := checkUptime(ctx, c.rdb, c.ttl); err != nil {
		return nil, errors.Join(err, l.Unlock(ctx))
	}
	return l, nil
}

// oldEnough tells whether a server has been up for longer than any lease it may have forgotten.
func checkUptime(ctx context.Context, rdb redis.UniversalClient, ttl time.Duration) error {
	info, err := rdb.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	_, after, _ := strings.Cut(info, "uptime_in_seconds:")
	text, _, _ := strings.Cut(after, "\r")
	up, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("uptime of the server: %w", err)
	}
	if time.Duration(up-1)*time.Second <= ttl { // it counts whole seconds
		return fmt.Errorf("up for %d s, a lease lasts %s: it does not vote yet", up, ttl)
	}
	return nil
}

// mend asks servers again that have no lock of ours, at every third of the lease, until the hold ends. Renewing those that have
// one is their clients' matter.
func (v *election) repair(g *group) {
	c := v.servers.clients[0]
	var timer *time.Timer
	timer = time.AfterFunc(time.Hour, func() {
		if !c.startTask() {
			return
		}
		defer c.running.Done()
		if v.work.Err() != nil {
			return
		}
		for _, i := range g.missing() {
			if l, err := v.request(v.work, i); err == nil {
				g.replace(i, l)
			}
		}
		if _, good := g.alive(); good {
			timer.Reset(v.ttl / renewPart)
		}
	})
	g.mu.Lock()
	g.onEnd = func() { timer.Stop() }
	g.mu.Unlock()
	timer.Reset(v.ttl / renewPart)
}

// missing are the places without a good member.
func (g *group) missing() (places []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, m := range g.members {
		if m == nil {
			places = append(places, i)
		} else if _, good := m.alive(); !good {
			places = append(places, i)
		}
	}
	return places
}
