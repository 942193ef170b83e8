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
	// maxIdleConnections bounds the examined connections that are kept for later calls: as many as the partitions of a
	// usual installation, so that a flood on all of them examines none anew. It is half of a process' connections
	// (config.redisPoolSize).
	maxIdleConnections = 16
	// examineEvery is how old the last examination of a server may get: its settings can be changed while it runs.
	examineEvery = 10 * time.Second
)

// connection is one connection to one server process that was examined for what its replies confirm. It never
// reconnects by itself, so another process can't take the place of the one that was examined.
type connection struct {
	*redis.Conn
	node     *redis.Client
	features redisstore.Features
	byReply  pipeline.Durability // what a reply on this connection proves
	examined time.Time           // zero: not yet, or again with the next call
}

// connections keeps examined connections for later calls. A connection serves one call at a time.
type connections struct {
	rdb redis.UniversalClient

	mu     sync.Mutex    // protects the rest
	idle   []*connection // the one used last comes last
	closed bool
}

func newConnections(rdb redis.UniversalClient) *connections { return &connections{rdb: rdb} }

// take returns a connection to the server of the marker's partition. The server has been examined on it within
// examineEvery.
func (c *connections) take(ctx context.Context, marker string) (*connection, error) {
	node, err := c.nodeOf(ctx, marker)
	if err != nil {
		return nil, err
	}
	conn := c.pop(node)
	if conn == nil {
		conn = &connection{Conn: node.Conn(), node: node}
	}
	if time.Since(conn.examined) < examineEvery {
		return conn, nil
	}
	if err := conn.examine(ctx, marker); err != nil {
		c.put(conn, err)
		return nil, err
	}
	return conn, nil
}

// examine finds out what the server's replies confirm. Where each reply proves that the disk has everything, one write
// makes that true of what the server loaded when it started, too: it was read, but not necessarily from the disk.
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
	default: // Redis is full: it still answers what needs no memory
		conn.examined = time.Time{}
	}
	return nil
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

// put takes a connection back. After an error of the network or of a change of servers all idle ones are closed: they
// lead to the same place, and each would cost a buyer a failed call.
func (c *connections) put(conn *connection, err error) {
	broken := err != nil && retry.IsTransient(err)
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
