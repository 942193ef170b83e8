package recovery

import (
	"context"
	"errors"
	"time"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/moves"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
	"sluice/pipeline/sales"
)

const (
	rebuildChunk = 1000 // slots per write: a millisecond of Redis
	// rebuildWrites is how many writes may be under way while the next slots are read: enough that Redis never waits.
	rebuildWrites = 2
	rebuildTries  = 3                // a rebuild whose staged slots were used up by a call with a lost reply starts again
	stagedTTL     = 10 * time.Minute // what a rebuild that died has staged expires
)

// rebuildPartition rebuilds the sales of a partition that are behind, and opens it for lost accepts.
func (r *round) rebuildPartition(ctx context.Context, p pipeline.Partition, behind []loss) error {
	if err := redisstore.CreateGroups(ctx, r.Redis, r.Keys, r.Partitions); err != nil {
		return err
	}
	inFlight, err := r.inFlight(ctx, p, salesOf(behind))
	if err != nil {
		return err
	}
	for _, l := range behind {
		events := inFlight[l.watermark.SaleID]
		orphans, err := r.orphans(ctx, pipeline.SalePartition{SaleID: l.watermark.SaleID, Partition: p}, events)
		if err != nil {
			return err
		}
		if err := r.rebuild(ctx, l, append(events, orphans...)); err != nil {
			return err
		}
	}
	return r.each(ctx, []pipeline.Partition{p}, lua.Reopen, lua.Reopening)
}

// inFlight reads the stream's events of some sales (nil: of all), oldest first, by sale id. It comes before Postgres is
// read: an event that a worker persists meanwhile is then seen in both, and counted once, by its order id; it is never
// missed.
func (v *Verifier) inFlight(
	ctx context.Context, p pipeline.Partition, sales map[string]bool,
) (map[string][]pipeline.Event, error) {
	found := map[string][]pipeline.Event{}
	err := redisstore.EachEvent(ctx, v.Redis, v.Keys, p, func(e pipeline.Event) bool {
		if sales == nil || sales[e.SaleID] {
			found[e.SaleID] = append(found[e.SaleID], e)
		}
		return true
	})
	return found, err
}

// rebuild rebuilds one sale on a partition, from the events that the stream has of it and from Postgres.
func (r *round) rebuild(ctx context.Context, l loss, events []pipeline.Event) error {
	began := time.Now()
	for range rebuildTries {
		report, result, err := r.rebuildOnce(ctx, l, events)
		switch {
		case err != nil:
			return err
		case result == lua.InstallOvertaken:
			return errOvertaken(l.watermark.Partition)
		case result == lua.InstallIncomplete:
			l.watermark.Lost += report.Missing // already recorded
			continue
		}
		if err := r.Store.FinishRebuild(ctx, report); err != nil {
			r.Log.Warn("the audit log does not say that a rebuild is done", "sale", report.SaleID, "error", err)
		}
		r.Metrics.rebuilt(report)
		r.Log.Error("a sale was rebuilt in Redis", "sale", report.SaleID, "partition", report.Partition,
			"cause", report.Cause, "reason", report.Reason,
			"stock_before", report.StockBefore, "stock_after", report.StockAfter,
			"accepted_before", report.AcceptedBefore, "accepted_after", report.AcceptedAfter, "live", report.Live,
			"in_flight", report.InFlight, "missing", report.Missing, "waiting", report.Waiting, "took", time.Since(began))
		r.reports = append(r.reports, report)
		return nil
	}
	return pipeline.Errorf(pipeline.KindUnavailable, "the slots of sale %s could not be staged", l.watermark.SaleID)
}

// rebuildOnce reads Postgres, stages the slots and the waitlist, records what it is about to do, and installs the sale.
func (r *round) rebuildOnce(
	ctx context.Context, l loss, events []pipeline.Event,
) (pipeline.RebuildReport, lua.InstallCode, error) {
	p := l.watermark.Partition
	staged := r.Keys.Staged(p, l.watermark.SaleID, r.token)
	defer r.unstage(ctx, staged)
	waitlist := &waitlistStager{
		rdb:      r.Redis,
		waitlist: r.Keys.StagedWaitlist(p, l.watermark.SaleID, r.token),
		waiting:  r.Keys.StagedWaiting(p, l.watermark.SaleID, r.token),
	}
	defer r.unstage(ctx, waitlist.waitlist, waitlist.waiting)
	slots, ended := newSlotStager(r.Redis, staged), newSlotStager(r.Redis, staged+":ended")
	defer r.unstage(ctx, ended.key)
	sale, found, err := r.collect(ctx, l, events, slots, waitlist, r.settleMoves(p))
	if err == nil {
		err = waitlist.flush(ctx)
	}
	if err == nil {
		err = r.stageEnded(ctx, pipeline.SalePartition{SaleID: sale.ID, Partition: p}, ended)
	}
	if err = errors.Join(err, slots.wait(ctx), ended.wait(ctx)); err != nil {
		return pipeline.RebuildReport{}, "", err
	}
	report := found.report(l, r.cause)
	if r.found != nil {
		followsFrom(&report, r.found)
	}
	// Recorded before it is done: a process that dies between the two leaves a pending line in the audit log, but no
	// repair ever goes unrecorded.
	switch err := r.Store.RecordRebuild(ctx, r.generation, r.actor, report); {
	case errors.Is(err, pipeline.ErrStaleGeneration):
		return report, "", errOvertaken(p)
	case err != nil:
		return report, "", err
	}
	call, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	result, err := lua.Install(call, r.Redis, lua.InstallKeys{
		Trusted: r.Keys.Trusted(p), Sale: r.Keys.Sale(p, sale.ID), Buyers: r.Keys.Buyers(p, sale.ID), Staged: staged,
		Waitlist: r.Keys.Waitlist(p, sale.ID), Waiting: r.Keys.Waiting(p, sale.ID),
		StagedWaitlist: waitlist.waitlist, StagedWaiting: waitlist.waiting,
		Ended: r.Keys.ForSale(p, sale.ID).Ended, StagedEnded: ended.key,
	}, r.token, lua.InstallState{
		Fields: sales.SaleFields(sale, p, found.stock), Staged: lua.Staged{
			Slots: slots.staged, Entries: waitlist.staged, Enders: ended.staged,
		},
		Counters: lua.Counters{
			Accepted: report.AcceptedAfter, Released: max(l.state.Released, l.watermark.Released), Tickets: found.tickets,
			MovedIn: found.moves.MovedIn, MovedOut: found.moves.MovedOut, MovesDone: found.moves.Done,
			MovesSettled: found.moves.Settled, MovesIn: halves(found.moves.In), MovesOut: halves(found.moves.Out),
		},
	})
	if err != nil {
		return report, "", pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not take the rebuilt sale")
	}
	return report, result, nil
}

func halves(all []moves.Move) []lua.Move {
	list := make([]lua.Move, len(all))
	for i, m := range all {
		list[i] = lua.Move{Number: m.Number, Units: m.Units}
	}
	return list
}

func (r *round) unstage(ctx context.Context, keys ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retry.CommandTimeout)
	defer cancel()
	_ = r.Redis.Unlink(ctx, keys...).Err() // else it expires
}
