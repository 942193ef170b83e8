package worker

import (
	"context"
	"time"

	"sluice/lua"
	"sluice/pipeline"
)

// leaveTimeout bounds leave as a whole. What it does not reach in time is reclaimed by the others as from a dead
// worker.
const leaveTimeout = 5 * time.Second

// leave releases the entries that this worker could not finish, so that others may claim them at once and not only
// after ClaimMinIdle, and removes the worker from the group.
func (w *Worker) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	released := 0
	for p := range pipeline.Partition(w.opts.Partitions) {
		n, err := w.releaseClaims(ctx, p)
		released += n
		if err == nil {
			err = w.removeSelf(ctx, p)
		}
		if err != nil {
			w.stepFailed("leave", err)
			return
		}
	}
	w.log.Info("worker left", "handed_over", released)
}

// releaseClaims sets the idle time of the worker's pending entries, which does not count as a delivery. Without a
// heartbeat the others look for them; with that idle time they may claim them. It returns the number of entries.
func (w *Worker) releaseClaims(ctx context.Context, p pipeline.Partition) (int, error) {
	from, total := "-", 0
	for {
		page, err := w.pendingOf(ctx, p, w.opts.Name, from)
		if err != nil || len(page) == 0 {
			return total, err
		}
		args := []any{"XCLAIM", w.keys.Orders(p), pipeline.Group, w.opts.Name, 0}
		for _, e := range page {
			args = append(args, e.ID)
		}
		args = append(args, "IDLE", w.opts.ClaimMinIdle.Milliseconds(), "JUSTID")
		if err := w.rdb.Do(ctx, args...).Err(); err != nil {
			return total, err
		}
		total += len(page)
		from = "(" + page[len(page)-1].ID
	}
}

func (w *Worker) removeSelf(ctx context.Context, p pipeline.Partition) error {
	heartbeat := w.keys.Worker(p, w.opts.Name)
	if err := w.rdb.Del(ctx, heartbeat).Err(); err != nil {
		return err
	}
	_, err := lua.Reap(ctx, w.rdb, w.keys.Orders(p), heartbeat, pipeline.Group, w.opts.Name)
	return err
}
