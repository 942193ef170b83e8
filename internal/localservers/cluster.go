package localservers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// clusterMasters is the least that a cluster has: fewer could not outvote one that is gone.
	clusterMasters = 3
	clusterSlots   = 16384
)

// portTaken is what Redis and Valkey write before they give up because somebody else has their port or that of their bus.
const portTaken = "Failed listening on port"

// RedisCluster is a private Redis Cluster of three masters on the loopback interface, without replicas, each with a third of
// the slots. Its methods may be called from any goroutine.
type RedisCluster struct {
	sandbox   *sandbox
	nodes []*Redis
}

// ports are those of a cluster's node: a node can't change them while it runs.
type ports struct{ clients, bus int }

// StartRedisCluster starts a private Redis Cluster and returns once every node serves all slots, which takes Redis two seconds
// at least. ctx bounds the start only; Close ends the nodes. ErrNoBinary is in the chain of the error when Redis is not installed.
func StartRedisCluster(ctx context.Context, o RedisOptions) (*RedisCluster, error) {
	den, err := openSandbox()
	if err != nil {
		return nil, err
	}
	c := &RedisCluster{sandbox: den}
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("private Redis Cluster: %w", err), c.Close())
	}
	return c, nil
}

func (c *RedisCluster) start(ctx context.Context, o RedisOptions) error {
	c.nodes = make([]*Redis, clusterMasters)
	starts, starting := errgroup.WithContext(ctx)
	for i := range c.nodes {
		starts.Go(func() (err error) {
			c.nodes[i], err = startNode(starting, c.sandbox, o)
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
	return c.awaitReady(ctx)
}

// startNode tries ports until nobody else has them: between the look at a port and its use another process may take it.
func startNode(ctx context.Context, d *sandbox, o RedisOptions) (*Redis, error) {
	var err error
	for range portTries {
		var at ports
		if at, err = freePorts(ctx); err != nil {
			continue
		}
		var r *Redis
		r, err = startRedisIn(ctx, d, o.asNode(at))
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

// freePorts draws a pair from below the range of outgoing connections; see lowestPort. By default the bus' port is 10,000 higher
// than that of the clients, and would lie in that range.
func freePorts(ctx context.Context) (ports, error) {
	clients := lowestPort + rand.IntN(highestPort-lowestPort)
	at := ports{clients: clients, bus: clients + 1}
	return at, errors.Join(portIsFree(ctx, at.clients), portIsFree(ctx, at.bus))
}

// asNode puts what makes a server a node before the caller's own lines. A node tells others its address, which it would
// otherwise learn from the first that speaks to it. The time-out is four times the usual: there is no replica to take over, and a
// busy machine must not make nodes take each other for dead.
func (o RedisOptions) asNode(at ports) RedisOptions {
	o.Config = append([]string{
		"bind 127.0.0.1",
		fmt.Sprintf("port %d", at.clients),
		fmt.Sprintf("cluster-port %d", at.bus),
		"cluster-enabled yes",
		"cluster-announce-ip 127.0.0.1",
		"cluster-node-timeout 60000",
	}, o.Config...)
	return o
}

// join gives a node its part of the slots and introduces it to the first one. Epochs that differ from the start spare the nodes an
// election over them.
func (c *RedisCluster) join(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	commands := []string{
		fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1),
		fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1),
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

// AwaitReady waits until every node knows all of them and serves: after the start, or after a node was restarted, which serves
// again two seconds later at the earliest.
func (c *RedisCluster) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %s", startLimit))
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for _, node := range c.nodes {
		for {
			info, err := node.do(ctx, "CLUSTER INFO")
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(clusterMasters)) {
				break
			}
			select {
			case <-ctx.Done():
				return errors.Join(fmt.Errorf("%s: %w; it knows:\n%s\nits log ends:\n%s", node.spec.name, context.Cause(ctx), info, node.Log()), err)
			case <-tick.C:
			}
		}
	}
	return nil
}

// Nodes are the masters, in the order of their slots. A node that was killed comes back on its ports with Restart; see
// AwaitReady.
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
