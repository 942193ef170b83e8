package admission

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

const (
	// maxIdleConnections bounds the connections that are kept examined: as many as the partitions of a usual installation, so
	// that a flood on all of them examines none anew. It is half of a process' connections (config.redisPoolSize).
	maxIdleConnections = 16
	// examineEvery is how old what is known about a server may get: its settings can be changed while it runs.
	examineEvery = 10 * time.Second
)

// connection is one connection to one server process, of which is known what its replies confirm. It never reconnects by itself,
// so another process can't take the place of the one that was examined.
type connection struct {
	*redis.Conn
	node     *redis.Client
	features redisstore.Features
	byReply  pipeline.Durability // what a reply on this connection proves
	examined time.Time           // zero: do it with the next call
}

// connections keeps examined connections for the next call. A connection serves one call at a time.
type connections struct {
	rdb redis.UniversalClient

	mu     sync.Mutex    // protects the rest
	idle   []*connection // the one used last comes last
	closed bool
}

func newConnections(rdb redis.UniversalClient) *connections { return &connections{rdb: rdb} }

// take returns a connection to the server that holds the marker's partition. The server has been examined on it within
// examineEvery.
func (s *connections) take(ctx context.Context, marker string) (*connection, error) {
	node, err := s.nodeOf(ctx, marker)
	if err != nil {
		return nil, err
	}
	conn := s.pop(node)
	if conn == nil {
		conn = &connection{Conn: node.Conn(), node: node}
	}
	if time.Since(conn.examined) < examineEvery {
		return conn, nil
	}
	if err := conn.examine(ctx, marker); err != nil {
		s.put(conn, err)
		return nil, err
	}
	return conn, nil
}

// examine finds out what the server's replies confirm. Where each reply proves that the disk has everything, one write
// makes that true of what the server loaded when it started: it was read, but not necessarily from the disk.
func (conn *connection) examine(ctx context.Context, marker string) error {
	features, err := redisstore.Examine(ctx, conn)
	if err != nil {
		return err
	}
	conn.features, conn.byReply, conn.examined = features, pipeline.DurabilityMemory, time.Now()
	if features.Durability() != pipeline.DurabilityFsync {
		return nil
	}
	err = conn.Set(ctx, marker, "1", 0).Err()
	switch {
	case err == nil:
		conn.byReply = pipeline.DurabilityFsync
	case retry.IsTransient(err):
		return err
	default: // Redis is full: what needs no memory is answered all the same
		conn.examined = time.Time{}
	}
	return nil
}

// nodeOf finds the server of a key.
func (s *connections) nodeOf(ctx context.Context, key string) (*redis.Client, error) {
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		return rdb, nil
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, key)
	default:
		return nil, pipeline.Errorf(pipeline.KindInvalid, "a Redis client of type %T can't be asked which server holds a key", rdb)
	}
}

func (s *connections) pop(node *redis.Client) *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.idle) - 1; i >= 0; i-- {
		if conn := s.idle[i]; conn.node == node {
			s.idle = append(s.idle[:i], s.idle[i+1:]...)
			return conn
		}
	}
	return nil
}

// put takes a connection back. After an error that tells of the network or of a change of servers all idle ones go: they
// lead to the same place, and each would cost a buyer a failed call.
func (s *connections) put(conn *connection, err error) {
	broken := err != nil && retry.IsTransient(err)
	s.mu.Lock()
	var drop []*connection
	if broken {
		drop, s.idle = s.idle, nil
	}
	if broken || s.closed || len(s.idle) >= maxIdleConnections {
		drop = append(drop, conn)
	} else {
		s.idle = append(s.idle, conn)
	}
	s.mu.Unlock()
	for _, conn := range drop {
		_ = conn.Close() // the client's pool has it again, or drops it if it is broken
	}
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok && broken {
		cluster.ReloadState(context.Background())
	}
}

// close gives all connections back to the client's pool.
func (s *connections) close() {
	s.mu.Lock()
	idle := s.idle
	s.idle, s.closed = nil, true
	s.mu.Unlock()
	for _, conn := range idle {
		_ = conn.Close()
	}
}
