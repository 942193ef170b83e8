package localservers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
)

const (
	// Replication needs TCP. Ports are drawn from below the range that systems use for outgoing connections (Linux:
	// 32768, others: 49152), so that none is taken by chance while its server is down.
	lowestPort, highestPort = 20000, 32000
	// portTries bounds how many ports are tried: each may be in use.
	portTries = 50
)

// replication is a Redis' part in it.
type replication struct {
	mu       sync.Mutex // protects the rest
	port     int        // on 127.0.0.1, for replicas; 0 until the first one
	replicas []*Redis
}

// StartReplica starts another Redis that follows this one, and returns once it is in sync. Config lines are as for
// StartRedis. It lives in the same sandbox and ends with this server; Close ends it sooner.
func (r *Redis) StartReplica(ctx context.Context, config ...string) (*Redis, error) {
	replica, err := startRedisIn(ctx, r.sandbox, settings{config: config, clock: r.clock != ""})
	if err != nil {
		return nil, fmt.Errorf("replica: %w", err)
	}
	r.replication.mu.Lock()
	r.replication.replicas = append(r.replication.replicas, replica)
	r.replication.mu.Unlock()
	return replica, replica.Follow(ctx, r)
}

// Follow makes this Redis a replica of another, whose data replaces its own, and returns once it is in sync. It stays a
// replica over restarts.
func (r *Redis) Follow(ctx context.Context, primary *Redis) error {
	port, err := primary.listen(ctx)
	if err != nil {
		return fmt.Errorf("give %s a port: %w", primary.spec.name, err)
	}
	line := fmt.Sprintf("replicaof 127.0.0.1 %d", port)
	if err := r.set(ctx, line, line); err != nil {
		return err
	}
	return r.awaitSync(ctx)
}

// Promote makes a replica a primary (REPLICAOF NO ONE), with the data it has by now. It stays one over restarts.
func (r *Redis) Promote(ctx context.Context) error {
	return r.set(ctx, "replicaof no one", "REPLICAOF NO ONE")
}

// set changes a setting of the running server and in its file.
func (r *Redis) set(ctx context.Context, line, command string) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if _, err := r.do(ctx, command); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return appendTo(r.config, line+"\n")
}

// listen gives the server a port on the loopback interface, once, and returns it.
func (r *Redis) listen(ctx context.Context) (int, error) {
	r.replication.mu.Lock()
	defer r.replication.mu.Unlock()
	if r.replication.port != 0 {
		return r.replication.port, nil
	}
	if err := r.set(ctx, "bind 127.0.0.1", "CONFIG SET bind 127.0.0.1"); err != nil {
		return 0, err
	}
	var err error
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if err = portIsFree(ctx, port); err != nil {
			continue
		}
		if err = r.set(ctx, fmt.Sprintf("port %d", port), fmt.Sprintf("CONFIG SET port %d", port)); err == nil {
			r.replication.port = port
			return port, nil
		}
	}
	return 0, err
}

func portIsFree(ctx context.Context, port int) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	return l.Close()
}

// awaitSync waits until a replica has its primary's data, on its own disk too, and receives every write. Until its
// first append-only file is written it would refuse to stop.
func (r *Redis) awaitSync(ctx context.Context) error {
	return r.await(ctx, "not in sync", nil, func(ctx context.Context) error {
		replication, err := r.do(ctx, "INFO replication")
		disk, diskErr := r.do(ctx, "INFO persistence")
		if containsAll(replication, "master_link_status:up") &&
			containsAll(disk, "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0") {
			return nil
		}
		return errors.Join(errors.New("it is still copying"), err, diskErr)
	})
}

func (r *Redis) closeReplicas() error {
	r.replication.mu.Lock()
	defer r.replication.mu.Unlock()
	var errs []error
	for _, replica := range r.replication.replicas {
		errs = append(errs, replica.Close())
	}
	return errors.Join(errs...)
}

func appendTo(path, content string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	return errors.Join(err, file.Close())
}
