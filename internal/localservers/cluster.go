package localservers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

const (
	// clusterMasters is the minimum for a cluster: fewer masters have no majority when one is gone.
	clusterMasters = 3
	clusterSlots   = 16384
	// takeOverMS is how long a master must be away for its replica to take over. A busy machine makes a node stand still
	// for a second.
	takeOverMS = "4000"
)

// portTaken is what Redis and Valkey log before they exit because their port or that of their bus is in use.
const portTaken = "Failed listening on port"

// RedisCluster is a private Redis Cluster of three masters on the loopback interface, each with a third of the slots,
// and with as many replicas or none. Its methods may be called from any goroutine.
type RedisCluster struct {
	sandbox *sandbox
	nodes   []*Redis // the masters, then their replicas in the same order, as they were at the start
}

// ports are those of a cluster's node: a node can't change them while it runs.
type ports struct{ clients, bus int }

// StartRedisCluster starts a private Redis Cluster and returns once every node serves all slots, which takes Redis two
// seconds at least. Config lines are as for StartRedis. ctx bounds the start only; Close ends the nodes. ErrNoBinary is
// in the chain of the error when Redis is not installed.
func StartRedisCluster(ctx context.Context, config ...string) (*RedisCluster, error) {
	return startRedisCluster(ctx, clusterMasters, config)
}

// StartReplicatedRedisCluster is StartRedisCluster with a replica for each master, which takes over when its master has
// been away for the node timeout. It returns once the replicas are in sync.
func StartReplicatedRedisCluster(ctx context.Context, config ...string) (*RedisCluster, error) {
	return startRedisCluster(ctx, 2*clusterMasters, append([]string{"cluster-node-timeout " + takeOverMS}, config...))
}

func startRedisCluster(ctx context.Context, nodes int, config []string) (*RedisCluster, error) {
	s, err := openSandbox()
	if err != nil {
		return nil, err
	}
	c := &RedisCluster{sandbox: s, nodes: make([]*Redis, nodes)}
	if err := c.start(ctx, config); err != nil {
		return nil, errors.Join(fmt.Errorf("private Redis Cluster: %w", err), c.Close())
	}
	return c, nil
}

func (c *RedisCluster) start(ctx context.Context, config []string) error {
	starts, starting := errgroup.WithContext(ctx)
	for i := range c.nodes {
		starts.Go(func() (err error) {
			c.nodes[i], err = startNode(starting, c.sandbox, config)
			return err
		})
	}
	if err := starts.Wait(); err != nil {
		return err
	}
	for i := range c.nodes {
		if err := c.join(ctx, i); err != nil {
			return err
		}
	}
	if err := c.awaitReady(ctx); err != nil {
		return err
	}
	return c.replicate(ctx)
}

// replicate has each node beyond the masters follow one of them.
func (c *RedisCluster) replicate(ctx context.Context) error {
	for i, replica := range c.nodes[clusterMasters:] {
		id, err := c.nodes[i].do(ctx, "CLUSTER MYID")
		if err != nil {
			return err
		}
		if _, err := replica.do(ctx, "CLUSTER REPLICATE "+strings.TrimSpace(id)); err != nil {
			return fmt.Errorf("%s: %w", replica.spec.name, err)
		}
	}
	for _, replica := range c.nodes[clusterMasters:] {
		if err := replica.awaitSync(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startNode tries ports until it finds free ones: another process may take a port between the check and its use.
func startNode(ctx context.Context, s *sandbox, config []string) (*Redis, error) {
	var err error
	for range portTries {
		var at ports
		if at, err = freePorts(ctx); err != nil {
			continue
		}
		var r *Redis
		r, err = startRedisIn(ctx, s, settings{config: nodeConfig(at, config)})
		if err == nil {
			r.cluster = at
			return r, nil
		}
		if !strings.Contains(err.Error(), portTaken) {
			break
		}
	}
	return nil, err
}

// freePorts draws a pair from below the range of outgoing connections; see lowestPort. By default the port of the bus
// is 10,000 above that of the clients, and would lie in that range.
func freePorts(ctx context.Context) (ports, error) {
	clients := lowestPort + rand.IntN(highestPort-lowestPort)
	at := ports{clients: clients, bus: clients + 1}
	return at, errors.Join(portIsFree(ctx, at.clients), portIsFree(ctx, at.bus))
}

// nodeConfig puts what makes a server a node before the caller's own lines. A node announces its address, which it
// would otherwise learn from its first peer. The timeout is four times the default: there is no replica to take over,
// and nodes on a busy machine must not take each other for dead.
func nodeConfig(at ports, config []string) []string {
	return append([]string{
		"bind 127.0.0.1",
		fmt.Sprintf("port %d", at.clients),
		fmt.Sprintf("cluster-port %d", at.bus),
		"cluster-enabled yes",
		"cluster-announce-ip 127.0.0.1",
		"cluster-node-timeout 60000",
	}, config...)
}

// join assigns a master its slots, and introduces it to the first node. Different epochs from the start spare the nodes
// an election over them.
func (c *RedisCluster) join(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	commands := []string{fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1)}
	if i < clusterMasters {
		commands = append(commands, fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", i*clusterSlots/clusterMasters,
			(i+1)*clusterSlots/clusterMasters-1))
	}
	if i > 0 {
		first := c.nodes[0].cluster
		commands = append(commands, fmt.Sprintf("CLUSTER MEET 127.0.0.1 %d %d", first.clients, first.bus))
	}
	for _, command := range commands {
		if _, err := c.nodes[i].do(ctx, command); err != nil {
			return fmt.Errorf("%s: %s: %w", c.nodes[i].spec.name, command, err)
		}
	}
	return nil
}

// awaitReady waits until every node knows all others and serves: after the start, or after a node was restarted, which
// serves again two seconds later at the earliest.
func (c *RedisCluster) awaitReady(ctx context.Context) error {
	for _, node := range c.nodes {
		if err := node.await(ctx, "not ready", nil, func(ctx context.Context) error {
			info, err := node.do(ctx, "CLUSTER INFO")
			if err == nil && !containsAll(info, "cluster_state:ok", "cluster_known_nodes:"+strconv.Itoa(len(c.nodes))) {
				err = fmt.Errorf("it knows:\n%s", info)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// Nodes returns the masters, in the order of their slots, and then their replicas in the same order: as they were at
// the start, whoever leads now. A node that was killed comes back on its ports with Restart,
// and serves again two seconds later at the earliest.
func (c *RedisCluster) Nodes() []*Redis { return c.nodes }

// URL names every node, in the form that REDIS_URL takes for a cluster. It stays the same over restarts.
func (c *RedisCluster) URL() string {
	addrs := make([]string, len(c.nodes))
	for i, node := range c.nodes {
		addrs[i] = fmt.Sprintf("127.0.0.1:%d", node.cluster.clients)
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

// Close ends the nodes and removes their data. Calling it twice is harmless.
func (c *RedisCluster) Close() error {
	var errs []error
	for _, node := range c.nodes {
		if node != nil {
			errs = append(errs, node.Close())
		}
	}
	return errors.Join(append(errs, c.sandbox.close())...)
}
