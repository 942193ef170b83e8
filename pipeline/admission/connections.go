package admission

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

const (
	// maxIdleConnections bounds the examined connections that are kept for later calls: as many as the partitions of a
	// usual installation, so that a flood on all of them examines none anew. It is half of a process' connections
	// (config.redisPoolSize).
	maxIdleConnections = 16
)

// connection is one connection to one server process that was examined for what its replies confirm. It never
// reconnects by itself, so another process can't take the place of the one that was examined.
type connection struct {
	*redis.Conn
	node         *redis.Client
	byReply      pipeline.Durability // what a reply on this connection proves
	waitsForDisk bool                // the server can be asked to wait until the disk has everything
	examined     time.Time           // zero: not yet, or again with the next call
	confirmed    time.Time           // when DURABILITY was last confirmed on it; only with DURABILITY_STRICT
}

// connections keeps examined connections for later calls. A connection serves one call at a time.
type connections struct {
	rdb  redis.UniversalClient
	want pipeline.Durability

	mu     sync.Mutex    // protects the rest
	idle   []*connection // the one used last comes last
	closed bool
}

func newConnections(rdb redis.UniversalClient, want pipeline.Durability) *connections {
	return &connections{rdb: rdb, want: want}
}

// take returns what a call must run on for its accepts to be confirmed: a connection to the server of the marker's
// partition, which examine has yet to see, or the client where memory is enough. The marker is a key of ours in the
// partition. The caller gives it back with put.
func (c *connections) take(ctx context.Context, marker string) (redis.Scripter, error) {
	if c.want == pipeline.DurabilityMemory {
		return c.rdb, nil
	}
	node, err := c.nodeOf(ctx, marker)
	if err != nil {
		return nil, err
	}
	if conn := c.pop(node); conn != nil {
		return conn, nil
	}
	return &connection{Conn: node.Conn(), node: node}, nil
}

// nodeOf finds the server of a key.
func (c *connections) nodeOf(ctx context.Context, key string) (*redis.Client, error) {
	switch rdb := c.rdb.(type) {
	case *redis.Client:
		return rdb, nil
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, key)
	default:
		return nil, pipeline.Errorf(pipeline.KindInvalid, "a Redis client of type %T can't say which server has a key", rdb)
	}
}

func (c *connections) pop(node *redis.Client) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.idle) - 1; i >= 0; i-- {
		if conn := c.idle[i]; conn.node == node {
			c.idle = append(c.idle[:i], c.idle[i+1:]...)
			return conn
		}
	}
	return nil
}

// put takes back what take returned, with the error of its last call. After an error of the network, of a change of
// servers, or of a user who may not do what is needed, all idle connections are closed: they lead to the same place,
// and each would cost a buyer a failed call. One that was refused never becomes better by itself.
func (c *connections) put(on redis.Scripter, err error) {
	conn, ok := on.(*connection)
	if !ok {
		return // the client
	}
	broken := err != nil && (retry.IsTransient(err) || retry.IsRefused(err))
	c.mu.Lock()
	var drop []*connection
	if broken {
		drop, c.idle = c.idle, nil
	}
	if broken || c.closed || len(c.idle) >= maxIdleConnections {
		drop = append(drop, conn)
	} else {
		c.idle = append(c.idle, conn)
	}
	c.mu.Unlock()
	for _, conn := range drop {
		_ = conn.Close() // the client's pool has it again, or drops it if it is broken
	}
	if cluster, ok := c.rdb.(*redis.ClusterClient); ok && broken {
		cluster.ReloadState(context.Background())
	}
}

// close returns all connections to the client's pool.
func (c *connections) close() {
	c.mu.Lock()
	idle := c.idle
	c.idle, c.closed = nil, true
	c.mu.Unlock()
	for _, conn := range idle {
		_ = conn.Close()
	}
}
