package localservers

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func newCluster(t *testing.T) *RedisCluster {
	t.Helper()
	c, err := StartRedisCluster(limited(t))
	needServer(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	return c
}

func clusterClient(t *testing.T, c *RedisCluster) *redis.ClusterClient {
	t.Helper()
	hosts := strings.TrimPrefix(c.URL(), "redis+cluster://")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(hosts, ",")})
	t.Cleanup(func() { check(t, client.Close()) })
	return client
}

// Two clusters at once, as two test processes start them: each is complete, with a third of the slots on each node, and
// knows nothing of the other.
func TestClustersServeAllSlotsAndOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	a, b := newCluster(t), newCluster(t)
	for i, c := range []*RedisCluster{a, b} {
		client := clusterClient(t, c)
		for n := range 100 {
			check(t, client.Set(limited(t), fmt.Sprint(n), i, 0).Err())
		}
		for n, node := range c.Nodes() {
			if keys := clientOf(t, node).DBSize(limited(t)).Val(); keys < 10 || keys > 60 {
				t.Errorf("cluster %d, node %d holds %d of 100 keys, want about a third", i, n, keys)
			}
		}
	}
	if got := clusterClient(t, a).Get(limited(t), "1").Val(); got != "0" {
		t.Errorf("got %s, want the first cluster's own 0", got)
	}
}

func TestANodeComesBackWithItsData(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	client := clusterClient(t, c)
	for n := range 100 {
		check(t, client.Set(limited(t), fmt.Sprint(n), n, 0).Err())
	}
	node := c.Nodes()[1]
	check(t, node.Kill())
	check(t, node.Restart(limited(t)))
	check(t, c.awaitReady(limited(t)))
	for n := range 100 {
		if got, err := client.Get(limited(t), fmt.Sprint(n)).Int(); err != nil || got != n {
			t.Errorf("key %d: got %d, %v", n, got, err)
		}
	}
}

// A port that was taken after it was checked costs a try, not the cluster.
func TestANodeWhosePortIsTakenSaysSo(t *testing.T) {
	t.Parallel()
	if _, err := findRedis(); err != nil {
		needServer(t, err)
	}
	box := must(openSandbox())(t)
	t.Cleanup(func() { check(t, box.close()) })
	for _, taken := range []string{"clients", "bus"} {
		l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
		t.Cleanup(func() { check(t, l.Close()) })
		free, err := freePorts(limited(t))
		for err != nil {
			free, err = freePorts(limited(t))
		}
		at := ports{clients: l.Addr().(*net.TCPAddr).Port, bus: free.bus}
		if taken == "bus" {
			at = ports{clients: free.clients, bus: at.clients}
		}
		_, err = startRedisIn(limited(t), box, settings{config: nodeConfig(at, nil)})
		if err == nil || !strings.Contains(err.Error(), portTaken) {
			t.Errorf("the port of %s: got %v, want %q in it", taken, err, portTaken)
		}
	}
}

func TestAClusterLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dir := filepath.Dir(c.Nodes()[0].Dir())
	check(t, c.Close())
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	for i, node := range c.Nodes() {
		if node.PID() != 0 {
			t.Errorf("node %d still runs", i)
		}
	}
	check(t, c.Close()) // once more
}
