package worker

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"sluice/lua"
	"sluice/pipeline"
)

const (
	// beyondAll is an entry id that nothing comes after, and "0-1" one that no event has.
	beyondAll, noEntry = "18446744073709551614-0", "0-1"
	// rehearsedAtOnce is how many partitions are rehearsed at once.
	rehearsedAtOnce = 4
)

// presence is whether the worker is in the group. What a rehearsal does there would bring it back after it has left.
type presence struct {
	mu     sync.RWMutex // protects joined; read-locked by a rehearsal
	joined bool
}

func (p *presence) set(joined bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joined = joined
}

var errNotJoined = pipeline.Errorf(pipeline.KindUnavailable, "the worker has not joined, or is leaving")

// Rehearse does with Redis what an event needs on its way through this worker, on every partition, but for an event
// that can't exist: the heartbeat, a fetch, the lock, the settling, and taking over what is pending. nil means that
// an event would be processed, as far as Redis is concerned. Its cost is four short calls for each partition. Errors:
// KindUnavailable.
func (w *Worker) Rehearse(ctx context.Context) error {
	w.present.mu.RLock()
	defer w.present.mu.RUnlock()
	if !w.present.joined {
		return errNotJoined
	}
	if err := w.rehearse(ctx); err != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis does not do what a worker needs")
	}
	return nil
}

func (w *Worker) rehearse(ctx context.Context) error {
	all := make([]pipeline.Partition, w.opts.Partitions)
	for p := range all {
		all[p] = pipeline.Partition(p)
	}
	if err := w.beat(ctx); err != nil {
		return err
	}
	if err := w.checkOwners(ctx, all); err != nil {
		return err
	}
	read := map[pipeline.Partition]bool{}
	for _, set := range w.readSets() {
		if read[set[0]] {
			continue // on one server every lane reads all partitions
		}
		for _, p := range set {
			read[p] = true
		}
		if err := w.rehearseFetch(ctx, set); err != nil {
			return err
		}
	}
	if _, err := w.pending(ctx); err != nil {
		return err
	}
	each, ctx := errgroup.WithContext(ctx)
	each.SetLimit(rehearsedAtOnce)
	for _, p := range all {
		each.Go(func() error { return w.rehearsePartition(ctx, p) })
	}
	return each.Wait()
}

// rehearseFetch reads again what this worker was given after the last entry that can be: nothing, and it does not wait.
func (w *Worker) rehearseFetch(ctx context.Context, partitions []pipeline.Partition) error {
	streams := make([]string, 0, 2*len(partitions))
	for _, p := range partitions {
		streams = append(streams, w.keys.Orders(p))
	}
	for range partitions {
		streams = append(streams, beyondAll)
	}
	return w.reader.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: pipeline.Group, Consumer: w.opts.Name, Streams: streams, Count: 1, Block: -1,
	}).Err()
}

func (w *Worker) rehearsePartition(ctx context.Context, p pipeline.Partition) error {
	lock := w.keys.OrderLock(p, "rehearsal-"+w.opts.Name)
	batch, err := w.locks.TryLockMany(ctx, []string{lock})
	if err != nil && !redis.IsOOMError(err) { // at maxmemory a worker does without locks
		return err
	}
	settled := lua.SettleItem{EntryID: noEntry}
	if err == nil {
		settled.LockKey = lock
	}
	_, err = lua.Settle(ctx, w.rdb, w.keys.Orders(p), pipeline.Group, batch.Token, []lua.SettleItem{settled})
	if err != nil {
		return err
	}
	if _, _, err := w.claim(ctx, p, []lua.PendingEntry{{ID: noEntry}}, time.Hour); err != nil {
		return err
	}
	_, _, _, err = w.autoClaim(ctx, p, beyondAll)
	return err
}
