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
	// MaxServers bounds a quorum: every lock asks each server.
	MaxServers = 15
	// votePart bounds the time that one server may take to vote, as a part of the lease: a dead one must not use up the
	// lease that the others gave.
	votePart = 4
	// voteBackoff is at first the longest time until the next vote; it doubles up to a tenth of the lease. The time is
	// random, so that two callers who split the votes don't split them again.
	voteBackoff = 20 * time.Millisecond
)

// Servers are independent Redis servers that vote (RedLock): not replicas of each other, not nodes of one cluster, each
// on its own machine.
type Servers struct{ clients []*Client }

// Quorum combines the clients of 1 to MaxServers independent servers, an odd number of them. All have the same TTL,
// which is also the longest lease.
func Quorum(clients ...*Client) Servers { return Servers{clients} }

// QuorumMutex is a lock that is held while a majority of servers gives it. It survives the death of a minority.
//
//   - A server votes only if it has been up for longer than a lease may last: if it lost its memory, it has forgotten
//     only expired leases (delayed restart). Uptime shows this; a flush without a restart goes unnoticed.
//   - A caller without a majority frees what it got, and tries again after a random time. There is no queue and no
//     fairness.
//   - Renewal asks servers again that have no lock of ours, so a minority that failed for a while is repaired.
//
// Not promised, as for one server: a holder that is suspended, and clocks that differ in speed by more than a
// hundredth. And there is no fence, since the clocks of several servers give no common order: where a store can check
// one, a Mutex on one server with a fence is the stronger lock. A quorum only makes it rarer that a server's death lets
// two holders in.
type QuorumMutex struct {
	servers Servers
	key     string
}

// Mutex returns the lock of a key on these servers.
func (s Servers) Mutex(key string) QuorumMutex { return QuorumMutex{s, key} }

var _ Locker = QuorumMutex{}

// Lock waits until it has a majority; see Locker. A server that fails counts as one that refuses.
func (m QuorumMutex) Lock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.take(ctx, true, options)
}

// TryLock votes once. ErrNotAcquired means that there was no majority; errors of servers are in its chain.
func (m QuorumMutex) TryLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.take(ctx, false, options)
}

func (m QuorumMutex) take(ctx context.Context, blocking bool, options []CallOption) (Hold, error) {
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
	e := election{QuorumMutex: m, work: ctx, ttl: ttl, o: lockOptions{owner: NewOwner(), lease: o.lease, strict: true}}
	return e.lock(waiting, blocking)
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

// election is one call of Lock.
type election struct {
	QuorumMutex
	work context.Context // of the holder
	ttl  time.Duration
	o    lockOptions // on each server
}

func (e *election) lock(ctx context.Context, blocking bool) (Hold, error) {
	longest := voteBackoff
	for {
		for _, c := range e.servers.clients {
			if c.closed() {
				return nil, ErrClosed
			}
		}
		if ctx.Err() != nil {
			return nil, waitEnded(ctx)
		}
		h, err := e.round(ctx)
		if err == nil || !blocking {
			return h, err
		}
		backoff := time.NewTimer(rand.N(longest) + time.Millisecond)
		select {
		case <-backoff.C:
		case <-ctx.Done():
		case <-e.servers.clients[0].closing.Done():
		}
		backoff.Stop()
		longest = max(min(2*longest, e.ttl/10), voteBackoff)
	}
}

// round asks all servers at the same time.
func (e *election) round(ctx context.Context) (Hold, error) {
	clients := e.servers.clients
	members, errs := make([]member, len(clients)), make([]error, len(clients))
	var calls sync.WaitGroup
	for i := range clients {
		calls.Go(func() {
			if l, err := e.request(ctx, i); err == nil {
				members[i] = l
			} else if !errors.Is(err, ErrNotAcquired) {
				errs[i] = fmt.Errorf("server %d: %w", i+1, err)
			}
		})
	}
	calls.Wait()
	g := newGroup(e.work, members, len(clients)/2+1)
	if _, good := g.alive(); !good {
		_, _ = g.forEach(func(m member) error { return m.Unlock(ctx) }) // what can't be freed ends with its lease
		return nil, errors.Join(append([]error{ErrNotAcquired}, errs...)...)
	}
	if e.o.lease == 0 {
		e.repair(g)
	}
	return g, nil
}

// request takes the lock on one server, if that server may vote.
func (e *election) request(ctx context.Context, i int) (*lease, error) {
	c := e.servers.clients[i]
	ctx, cancel := context.WithTimeout(ctx, max(e.ttl/votePart, time.Millisecond))
	defer cancel()
	l, err := c.Mutex(e.key).leaseFor(ctx, e.work, false, e.o, e.ttl)
	if err != nil {
		return nil, err
	}
	// Checked afterwards: a server that is old enough now was old enough when it gave the lock.
	if err := checkUptime(ctx, c.rdb, c.ttl); err != nil {
		return nil, errors.Join(err, l.Unlock(ctx))
	}
	return l, nil
}

// checkUptime returns an error unless a server has been up for longer than any lease it may have forgotten.
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

// repair asks servers again that have no lock of ours, at every third of the lease, until the hold ends. Their clients
// renew those that have one.
func (e *election) repair(g *group) {
	c := e.servers.clients[0]
	var timer *time.Timer
	timer = time.AfterFunc(time.Hour, func() {
		if !c.startTask() {
			return
		}
		defer c.running.Done()
		if e.work.Err() != nil {
			return
		}
		for _, i := range g.missing() {
			if l, err := e.request(e.work, i); err == nil {
				g.replace(i, l)
			}
		}
		if _, good := g.alive(); good {
			timer.Reset(e.ttl / renewPart)
		}
	})
	g.mu.Lock()
	g.onEnd = func() { timer.Stop() }
	g.mu.Unlock()
	timer.Reset(e.ttl / renewPart)
}

// missing returns the indexes without a valid member.
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
