package localservers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
)

// findLimit is far more than a client needs to find a new primary, and less than a client's picture of a cluster lives
// by the library's default.
const findLimit = 30 * time.Second

// TestAReplicaTakesOver: of a primary that is killed, with sentinels and in a cluster; and clients find it by the same
// URL.
func TestAReplicaTakesOver(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (url string, primary, replica *Redis){
		"sentinel": func(t *testing.T) (string, *Redis, *Redis) {
			s, err := StartRedisSentinel(limited(t))
			needServer(t, err)
			t.Cleanup(func() { check(t, s.Close()) })
			return s.URL(), s.Nodes()[0], s.Nodes()[1]
		},
		"cluster": func(t *testing.T) (string, *Redis, *Redis) {
			c, err := StartReplicatedRedisCluster(limited(t))
			needServer(t, err)
			t.Cleanup(func() { check(t, c.Close()) })
			return c.URL(), c.Nodes()[2], c.Nodes()[5]
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, primary, replica := start(t)
			options, err := config.RedisOptions(url)
			check(t, err)
			client := config.NewRedisClient(options)
			t.Cleanup(func() { check(t, client.Close()) })
			const key = "a" // of the last third of the slots
			check(t, client.Set(limited(t), key, "1", 0).Err())
			if acknowledged := clientOf(t, primary).Wait(limited(t), 1, 0).Val(); acknowledged != 1 {
				t.Fatalf("%d replicas, want 1", acknowledged)
			}
			check(t, primary.Kill())
			check(t, replica.await(limited(t), "nobody took over", nil, replica.leads))
			// The primary stays away for now, so that no answer of its own leads the client to the replica.
			began := time.Now()
			for client.Set(limited(t), key, "1", 0).Err() != nil {
				if time.Since(began) > findLimit {
					t.Fatalf("the client did not find the new primary within %s", findLimit)
				}
				time.Sleep(50 * time.Millisecond)
			}
			check(t, primary.Restart(limited(t)))
			check(t, primary.await(limited(t), "it did not follow", nil, primary.follows))
			if got := client.Get(limited(t), key).Val(); got != "1" {
				t.Errorf("got %q, want what was replicated", got)
			}
			check(t, client.Set(limited(t), key, "2", 0).Err())
		})
	}
}

func (r *Redis) leads(ctx context.Context) error { return r.has(ctx, "role:master") }

func (r *Redis) follows(ctx context.Context) error { return r.has(ctx, "master_link_status:up") }

func (r *Redis) has(ctx context.Context, part string) error {
	info, err := r.do(ctx, "INFO replication")
	if err == nil && !strings.Contains(info, part) {
		err = errors.New(info)
	}
	return err
}
