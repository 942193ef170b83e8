package recovery

import (
	"context"
	"errors"
	"slices"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
	"sluice/pipeline/sales"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"sluice/lua"
)

const (
	rebuildChunk = 1000 // slots per write: a millisecond of Redis
	// rebuildWrites is how many writes may be under way while the next slots are read: enough that Redis never waits.
	rebuildWrites = 2
	rebuildTries  = 3                // a rebuild whose staged slots were used up by a call with a lost reply starts again
	stagedTTL     = 10 * time.Minute // what a dead rebuild staged goes away by itself
)

// rebuildPartition rebuilds the sales of a partition that are behind, and opens it for lost accepts.
func (r *round) rebuildPartition(ctx context.Context, p pipeline.Partition, behind []lag) error {
	if err := redisstore.CreateGroups(ctx, r.Redis, r.Keys, r.Partitions); err != nil {
		return err
	}
	inFlight, err := r.inFlight(ctx, p, salesOf(behind))
	if err != nil {
		return err
	}
	for _, l := range behind {
		if err := r.rebuild(ctx, l, inFlight[l.mark.SaleID]); err != nil {
			return err
		}
	}
	return r.each(ctx, []pipeline.Partition{p}, lua.Reopen, lua.Reopening)
}

// inFlight reads the stream's events of some sales, oldest first. It comes before Postgres is read: an event that a worker
// persists meanwhile is then seen in both, and counted once, by its order id; it is never missed.
func (v *Verifier) inFlight(ctx context.Context, p pipeline.Partition, sales map[string]bool) (map[string][]pipeline.Event, error) {
	found := map[string][]pipeline.Event{}
	err := redisstore.EachEvent(ctx, v.Redis, v.Keys, p, func(e pipeline.Event) bool {
		if sales[e.SaleID] {
			found[e.SaleID] = append(found[e.SaleID], e)
		}
		return true
	})
	return found, err
}

func (r *round) rebuild(ctx context.Context, l lag, events []pipeline.Event) error {
	began := time.Now()
	for range rebuildTries {
		report, result, err := r.rebuildOnce(ctx, l, events)
		switch {
		case err != nil:
			return err
		case result == lua.InstallOvertaken:
			return errOvertaken(l.mark.Partition)
		case result == lua.InstallIncomplete:
			l.mark.Lost += report.Missing // they are on record
			continue
		}
		r.Metrics.rebuilt(report)
		r.Log.Error("a sale was rebuilt in Redis", "sale", report.SaleID, "partition", report.Partition, "cause", report.Cause,
			"reason", report.Reason, "stock_before", report.StockBefore, "stock_after", report.StockAfter,
			"accepted_before", report.AcceptedBefore, "accepted_after", report.AcceptedAfter, "live", report.Live,
			"in_flight", report.InFlight, "missing", report.Missing, "waiting", report.Waiting, "took", time.Since(began))
		r.reports = append(r.reports, report)
		return nil
	}
	return pipeline.Errorf(pipeline.KindUnavailable, "the slots of sale %s could not be staged", l.mark.SaleID)
}

// rebuildOnce reads Postgres, stages the slots, puts on record what it does, and installs the sale.
func (r *round) rebuildOnce(ctx context.Context, l lag, events []pipeline.Event) (pipeline.RebuildReport, lua.InstallCode, error) {
	p := l.mark.Partition
	staged := r.Keys.Staged(p, l.mark.SaleID, r.token)
	defer r.unstage(ctx, staged)
	people := &placeStager{
		rdb: r.Redis, waitlist: r.Keys.StagedWaitlist(p, l.mark.SaleID, r.token), waiting: r.Keys.StagedWaiting(p, l.mark.SaleID, r.token),
	}
	defer r.unstage(ctx, people.waitlist, people.waiting)
	s := newSlotStager(r.Redis, staged)
	sale, found, err := r.collect(ctx, l, events, s, people)
	if err == nil {
		err = people.flush(ctx)
	}
	if err = errors.Join(err, s.wait(ctx)); err != nil {
		return pipeline.RebuildReport{}, "", err
	}
	report := found.report(l, r.cause)
	if r.found != nil {
		followsFrom(&report, r.found)
	}
	// On record before it is done: whoever dies between the two leaves a line too many, and never a repair that nobody hears of.
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
		StagedWaitlist: people.waitlist, StagedWaiting: people.waiting,
	}, r.token, lua.InstallState{
		Fields: sales.SaleFields(sale, p, found.stock), Staged: lua.Staged{Slots: s.staged, Entries: people.staged},
		Counters: lua.Counters{
			Accepted: report.AcceptedAfter, Released: max(l.holds.Released, l.mark.Released), Tickets: found.tickets,
		},
	})
	if err != nil {
		return report, "", pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not take the rebuilt sale")
	}
	return report, result, nil
}

func (r *round) unstage(ctx context.Context, keys ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retry.CommandTimeout)
	defer cancel()
	_ = r.Redis.Unlink(ctx, keys...).Err() // else it goes by its TTL
}

// collected is what a sale on a partition is found to be.
type collected struct {
	stock, live, inFlight, slots, accepted, missing int64
	waiting, tickets                                int64
}

func (c collected) report(l lag, cause string) pipeline.RebuildReport {
	return pipeline.RebuildReport{
		SaleID: l.mark.SaleID, Partition: l.mark.Partition, Cause: cause, Reason: l.why,
		StockBefore: l.holds.Stock, StockAfter: c.stock, AcceptedBefore: l.holds.Accepted, AcceptedAfter: c.accepted,
		Live: c.live, InFlight: c.inFlight, Slots: c.slots, Missing: c.missing, Waiting: c.waiting,
	}
}

// slotTaker gets every buyer's slot once.
type slotTaker interface {
	take(ctx context.Context, userID string, slot lua.Slot) error
}

// collect finds out who holds a slot of a sale, and what is left of it. The live orders come first; an event in the stream
// gets a slot where its order has no row and its buyer no other order: only those hold units.
func (v *Verifier) collect(ctx context.Context, l lag, events []pipeline.Event, slots slotTaker, people placeTaker) (*pipeline.Sale, collected, error) {
	p := l.mark.Partition
	sale, err := v.Store.Sale(ctx, l.mark.SaleID)
	if err != nil {
		return nil, collected{}, err
	}
	c := collected{accepted: max(l.holds.Accepted, l.mark.Accepted)}
	ids, buyers := make([]string, len(events)), map[string]bool{}
	for i, e := range events {
		ids[i] = e.OrderID
		buyers[e.UserID] = false
		c.accepted = max(c.accepted, e.Sequence)
	}
	var units int64
	ledger, err := v.Store.Ledger(ctx, sale.ID, ids, func(o pipeline.LedgerOrder) error {
		if o.Partition != p {
			return nil
		}
		if _, waits := buyers[o.UserID]; waits {
			buyers[o.UserID] = true
		}
		c.live++
		units += int64(o.Quantity)
		return slots.take(ctx, o.UserID, slotOfOrder(&o))
	}, nil)
	if err != nil {
		return nil, c, err
	}
	for _, e := range events {
		if _, known := ledger.Known[e.OrderID]; known || buyers[e.UserID] {
			continue
		}
		buyers[e.UserID] = true
		c.inFlight++
		units += int64(e.Quantity)
		if err := slots.take(ctx, e.UserID, slotOfEvent(&e)); err != nil {
			return nil, c, err
		}
	}
	c.slots = c.live + c.inFlight
	c.accepted = max(c.accepted, ledger.Watermarks[p])
	c.missing = max(0, c.accepted-ledger.ByPartition[p]-c.inFlight-l.mark.Lost)
	c.stock = sale.ShareOf(p, sale.Total) - units
	err = v.collectWaiting(ctx, l, events, buyers, &c, people)
	return sale, c, err
}

func slotOfOrder(o *pipeline.LedgerOrder) lua.Slot {
	return lua.Slot{
		OrderID: o.OrderID, Quantity: o.Quantity, Number: o.Number, AcceptedMS: o.AcceptedAt.UnixMilli(), Sequence: o.Sequence,
	}
}

func slotOfEvent(e *pipeline.Event) lua.Slot {
	return lua.Slot{
		OrderID: e.OrderID, Quantity: e.Quantity, Number: e.Number, AcceptedMS: e.AcceptedAt.UnixMilli(), Sequence: e.Sequence,
	}
}

// slotStager writes slots into a key of their own, in pieces, while the next ones are read. Whoever makes one calls wait.
type slotStager struct {
	rdb     redis.UniversalClient
	key     string
	pending []any
	staged  int
	writes  errgroup.Group
}

func newSlotStager(rdb redis.UniversalClient, key string) *slotStager {
	s := &slotStager{rdb: rdb, key: key}
	s.writes.SetLimit(rebuildWrites)
	return s
}

func (s *slotStager) take(ctx context.Context, userID string, slot lua.Slot) error {
	s.pending = append(s.pending, userID, slot.String())
	if len(s.pending) == 2*rebuildChunk {
		s.flush(ctx)
	}
	return ctx.Err()
}

// flush begins to write what is pending, once there is room for one more write.
func (s *slotStager) flush(ctx context.Context) {
	slots := s.pending
	s.staged += len(slots) / 2
	s.pending = make([]any, 0, 2*rebuildChunk)
	s.writes.Go(func() error {
		ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
		defer cancel()
		pipe := s.rdb.Pipeline()
		pipe.HSet(ctx, s.key, slots...)
		pipe.PExpire(ctx, s.key, stagedTTL)
		if _, err := pipe.Exec(ctx); err != nil {
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not take the buyers of a sale")
		}
		return nil
	})
}

// wait writes the rest. Its error is the first of all writes.
func (s *slotStager) wait(ctx context.Context) error {
	if len(s.pending) > 0 {
		s.flush(ctx)
	}
	return s.writes.Wait()
}

// slotCounter looks on, for a dry run.
type slotCounter struct{}

func (slotCounter) take(context.Context, string, lua.Slot) error { return nil }

// Rebuild rebuilds one sale on all of its partitions, whether or not it looks behind. Without apply nothing is changed: the
// reports say what would be. With it nobody is admitted on those partitions meanwhile, and the actor goes into the audit log.
// Errors: KindNotFound; KindConflict when another verification is under way; KindUnavailable.
func (v *Verifier) Rebuild(ctx context.Context, saleID, actor string, apply bool) ([]pipeline.RebuildReport, error) {
	sale, err := v.Store.Sale(ctx, saleID)
	if err != nil {
		return nil, err
	}
	return v.rebuildSales(ctx, []*pipeline.Sale{sale}, actor, apply)
}

// RebuildAll is Rebuild for every sale that Redis must hold: those that were loaded, until a day after their last order can be
// paid. Errors: those of Rebuild.
func (v *Verifier) RebuildAll(ctx context.Context, actor string, apply bool) ([]pipeline.RebuildReport, error) {
	marks, err := v.Store.Watermarks(ctx)
	if err != nil {
		return nil, err
	}
	var sales []*pipeline.Sale
	seen := map[string]bool{}
	for _, m := range marks {
		if seen[m.SaleID] {
			continue
		}
		seen[m.SaleID] = true
		sale, err := v.Store.Sale(ctx, m.SaleID)
		if err != nil {
			return nil, err
		}
		sales = append(sales, sale)
	}
	return v.rebuildSales(ctx, sales, actor, apply)
}

func (v *Verifier) rebuildSales(ctx context.Context, sales []*pipeline.Sale, actor string, apply bool) ([]pipeline.RebuildReport, error) {
	if !apply || len(sales) == 0 {
		return v.planRebuild(ctx, sales, nil)
	}
	r := v.newRound("operator")
	r.actor = actor
	err := v.rebuildExclusively(ctx, r, sales, nil)
	return r.reports, err
}

// rebuildExclusively closes the partitions of some sales, lets the caller do something before anything is read (nil:
// nothing), and rebuilds the sales. After an error some may be closed: the next look of an api or a worker verifies them.
func (v *Verifier) rebuildExclusively(ctx context.Context, r *round, sales []*pipeline.Sale, first func(context.Context, pipeline.Generation) error) error {
	ran, err := v.Store.RunExclusively(ctx, verifyName, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, verifyLimit)
		defer cancel()
		partitions := partitionsOf(sales)
		err := r.begin(ctx, partitions)
		if err == nil && first != nil {
			err = first(ctx, r.generation)
		}
		if err != nil {
			return err
		}
		behind, err := v.lags(ctx, sales)
		if err != nil {
			return err
		}
		for _, p := range partitions {
			if err := r.rebuildPartition(ctx, p, behind[p]); err != nil {
				return err
			}
		}
		return r.open(ctx, partitions)
	})
	if err == nil && !ran {
		err = pipeline.Errorf(pipeline.KindConflict, "another verification is under way; look again when it is done")
	}
	return err
}

// partitionsOf are those that hold any of some sales, each once, in order.
func partitionsOf(sales []*pipeline.Sale) []pipeline.Partition {
	var all []pipeline.Partition
	for _, sale := range sales {
		all = append(all, sale.Partitions...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// planRebuild says what a rebuild would find if there were some more events in the stream.
func (v *Verifier) planRebuild(ctx context.Context, sales []*pipeline.Sale, more []pipeline.Event) ([]pipeline.RebuildReport, error) {
	behind, err := v.lags(ctx, sales)
	if err != nil {
		return nil, err
	}
	reports := []pipeline.RebuildReport{}
	for _, p := range partitionsOf(sales) {
		events, err := v.inFlight(ctx, p, salesOf(behind[p]))
		if err != nil {
			return nil, err
		}
		for _, e := range more {
			if e.Partition == p {
				events[e.SaleID] = append(events[e.SaleID], e)
			}
		}
		for _, l := range behind[p] {
			_, found, err := v.collect(ctx, l, events[l.mark.SaleID], slotCounter{}, placeCounter{})
			if err != nil {
				return nil, err
			}
			reports = append(reports, found.report(l, "operator"))
		}
	}
	return reports, nil
}

// lags are some sales' partitions as an operator's rebuild takes them: all of them, behind or not.
func (v *Verifier) lags(ctx context.Context, sales []*pipeline.Sale) (map[pipeline.Partition][]lag, error) {
	marks, err := v.Store.Watermarks(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[pipeline.SalePartition]pipeline.Watermark, len(marks))
	for _, m := range marks {
		known[pipeline.SalePartition{SaleID: m.SaleID, Partition: m.Partition}] = m
	}
	lags := map[pipeline.Partition][]lag{}
	for _, sale := range sales {
		for _, p := range sale.Partitions {
			m, ok := known[pipeline.SalePartition{SaleID: sale.ID, Partition: p}]
			if !ok {
				m = pipeline.Watermark{SaleID: sale.ID, Partition: p, Version: sale.Version}
			}
			holds, err := v.holds(ctx, m)
			if err != nil {
				return nil, err
			}
			why := holds.behind(m)
			if why == "" {
				why = "none"
			}
			lags[p] = append(lags[p], lag{mark: m, holds: holds, why: why})
		}
	}
	return lags, nil
}

// salesOf names the sales of some lags.
func salesOf(behind []lag) map[string]bool {
	sales := make(map[string]bool, len(behind))
	for _, l := range behind {
		sales[l.mark.SaleID] = true
	}
	return sales
}
