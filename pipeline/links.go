package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxIdleLinks bounds the connections that are kept examined: as many as the partitions of a usual installation, so
	// that a flood on all of them examines none anew. It is half of a process' connections (config.redisPoolSize).
	maxIdleLinks = 16
	// examineEvery is how old what is known about a server may get: its settings can be changed while it runs.
	examineEvery = 10 * time.Second
)

// link is one connection to one server process, of which is known what its replies confirm. It never reconnects by itself,
// so another process can't take the place of the one that was examined.
type link struct {
	*redis.Conn
	node     *redis.Client
	features Features
	byReply  Durability // what a reply on this connection proves
	examined time.Time  // zero: do it with the next call
}

// links keeps examined connections for the next call. Whoever takes one has it for himself.
type links struct {
	rdb redis.UniversalClient

	mu     sync.Mutex // protects the rest
	idle   []*link    // the one used last comes last
	closed bool
}

func newLinks(rdb redis.UniversalClient) *links { return &links{rdb: rdb} }

// take returns a connection to the server that holds the marker's partition. The server has been examined on it within
// examineEvery.
func (s *links) take(ctx context.Context, marker string) (*link, error) {
	node, err := s.nodeOf(ctx, marker)
	if err != nil {
		return nil, err
	}
	l := s.pop(node)
	if l == nil {
		l = &link{Conn: node.Conn(), node: node}
	}
	if time.Since(l.examined) < examineEvery {
		return l, nil
	}
	if err := l.examine(ctx, marker); err != nil {
		s.give(l, err)
		return nil, err
	}
	return l, nil
}

// examine finds out what the server's replies confirm. Where each reply proves that the disk has everything, one write
// makes that true of what the server loaded when it started: it was read, but not necessarily from the disk.
func (l *link) examine(ctx context.Context, marker string) error {
	features, err := examine(ctx, l)
	if err != nil {
		return err
	}
	l.features, l.byReply, l.examined = features, DurabilityMemory, time.Now()
	if features.Durability() != DurabilityFsync {
		return nil
	}
	err = l.Set(ctx, marker, "1", 0).Err()
	switch {
	case err == nil:
		l.byReply = DurabilityFsync
	case passes(err):
		return err
	default: // Redis is full: what needs no memory is answered all the same
		l.examined = time.Time{}
	}
	return nil
}

// nodeOf finds the server of a key.
func (s *links) nodeOf(ctx context.Context, key string) (*redis.Client, error) {
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		return rdb, nil
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, key)
	default:
		return nil, Errorf(KindInvalid, "a Redis client of type %T can't be asked which server holds a key", rdb)
	}
}

func (s *links) pop(node *redis.Client) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.idle) - 1; i >= 0; i-- {
		if l := s.idle[i]; l.node == node {
			s.idle = append(s.idle[:i], s.idle[i+1:]...)
			return l
		}
	}
	return nil
}

// give takes a connection back. After an error that tells of the network or of a change of servers all idle ones go: they
// lead to the same place, and each would cost a buyer a failed call.
func (s *links) give(l *link, err error) {
	broken := err != nil && passes(err)
	s.mu.Lock()
	var drop []*link
	if broken {
		drop, s.idle = s.idle, nil
	}
	if broken || s.closed || len(s.idle) >= maxIdleLinks {
		drop = append(drop, l)
	} else {
		s.idle = append(s.idle, l)
	}
	s.mu.Unlock()
	for _, l := range drop {
		_ = l.Close() // the client's pool has it again, or drops it if it is broken
	}
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok && broken {
		cluster.ReloadState(context.Background())
	}
}

// close gives all connections back to the client's pool.
func (s *links) close() {
	s.mu.Lock()
	idle := s.idle
	s.idle, s.closed = nil, true
	s.mu.Unlock()
	for _, l := range idle {
		_ = l.Close()
	}
}
