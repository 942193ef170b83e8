package recovery

import (
	"context"
	"time"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

const (
	// homePage is how many orders are looked up, stored or ended at once: the most that one statement takes.
	homePage = pipeline.MaxPersistBatch
	// homeWrites is how many pages are stored at once. One sale takes one at a time, and the next is on its way then.
	homeWrites = 3
	// homeGrace is the time that orders which await their payment have for it at least: they may be paid already, and
	// what is left of that is with the payment provider.
	homeGrace = time.Hour
	// homeLimit bounds it all. A million orders take a minute or two.
	homeLimit = 30 * time.Minute
)

// homeStore is what is needed of Postgres to store again what it has forgotten.
type homeStore interface {
	PersistHome(
		ctx context.Context, g pipeline.Generation, events []pipeline.Event,
	) ([]pipeline.PersistOutcome, error)
	// LiveOrdersAfter lists live orders by their ids.
	LiveOrdersAfter(
		ctx context.Context, at pipeline.SalePartition, after string, limit int,
	) ([]pipeline.LedgerOrder, error)
	EndForgotten(ctx context.Context, g pipeline.Generation, saleID string, orderIDs []string) (int64, error)
	// CountHome counts what was done about orders of a sale on a partition since a loss was found.
	CountHome(ctx context.Context, at pipeline.SalePartition, since time.Time) (HomeCount, error)
	Clock(ctx context.Context) (time.Time, error)
	// Spare gives orders that await their payment more time for it, a page of the sale's orders at a time.
	Spare(
		ctx context.Context, at pipeline.SalePartition, until Spared, after string, limit int,
	) (last string, spared int64, err error)
}

// bringHome closes every partition, has Postgres store again what Redis knows, and opens them. Postgres stores nothing
// else meanwhile: the server is not examined before the end. It may die at any step and be repeated, by any process: a
// loss that was begun is gone on with, whatever the marks say by then.
func (v *Verifier) bringHome(ctx context.Context, identity string) error {
	ctx, cancel := context.WithTimeout(ctx, homeLimit)
	defer cancel()
	began := time.Now()
	v.Metrics.ledgerLosses.Inc()
	behind, err := v.salesBehind(ctx)
	if err != nil {
		return err
	}
	begun, err := v.Ledger.BeginLedgerLoss(ctx, behind)
	if err != nil {
		return err
	}
	r := v.newRound("ledger")
	all := make([]pipeline.Partition, v.Partitions)
	for p := range all {
		all[p] = pipeline.Partition(p)
	}
	if err := r.begin(ctx, all); err != nil {
		return err
	}
	if err := r.passGenerations(ctx, all); err != nil {
		return err
	}
	losses, err := r.behind(ctx, all, true)
	if err != nil {
		return err
	}
	found, err := r.bringHomeSales(ctx, begun, losses)
	if err != nil {
		return err
	}
	if losses, err = r.withSpread(ctx, losses); err != nil {
		return err
	}
	for p, losses := range losses { // both went back: what is left of a sale in Redis has its rows by now
		if err := r.rebuildLost(ctx, p, losses); err != nil {
			return err
		}
	}
	if err := v.Ledger.FinishLedgerLoss(ctx, r.generation, identity, found); err != nil {
		return err
	}
	v.logHome(found, time.Since(began))
	if err := r.each(ctx, all, lua.Reopen, lua.Reopening); err != nil {
		return err
	}
	return r.reopen(ctx, all, reopenGrace)
}

// bringHomeSales brings one sale after the other home, and reports on each. What a process that died had done of it
// already is in the report: its numbers are those of the loss as it was found, and of what Postgres has since.
func (r *round) bringHomeSales(
	ctx context.Context, begun BegunLoss, losses map[pipeline.Partition][]loss,
) ([]SaleLoss, error) {
	sales, err := r.Ledger.LedgerMarks(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := r.readMarks(ctx, sales)
	if err != nil {
		return nil, err
	}
	behind := map[pipeline.SalePartition]SaleLoss{}
	for _, s := range begun.Behind {
		behind[pipeline.SalePartition{SaleID: s.SaleID, Partition: s.Partition}] = s
	}
	lost := map[pipeline.SalePartition]string{}
	for p, losses := range losses {
		for _, l := range losses {
			lost[pipeline.SalePartition{SaleID: l.watermark.SaleID, Partition: p}] = l.why
		}
	}
	inFlight := map[pipeline.Partition]map[string][]pipeline.Event{}
	reports := make([]SaleLoss, 0, len(sales))
	for _, m := range sales {
		events, read := inFlight[m.Partition]
		if !read {
			if events, err = r.inFlight(ctx, m.Partition, nil); err != nil {
				return nil, err
			}
			inFlight[m.Partition] = events
		}
		report, found := behind[m.SalePartition]
		if !found {
			report = SaleLoss{
				SaleID: m.SaleID, Partition: m.Partition, Settled: kept[m.SalePartition].settled, Stored: m.Stored,
			}
		}
		report.RedisBehind = lost[m.SalePartition]
		h := homecoming{round: r, at: m.SalePartition, since: begun.FoundAt, events: events[m.SaleID], report: report}
		if err := h.run(ctx, kept[m.SalePartition].released); err != nil {
			return nil, err
		}
		if h.changed() {
			reports = append(reports, h.report)
		}
	}
	return reports, nil
}

// passGenerations begins further generations while Redis was verified in a later one: Postgres has forgotten those, and
// none may have the number of another.
func (r *round) passGenerations(ctx context.Context, partitions []pipeline.Partition) error {
	var latest pipeline.Generation
	for _, p := range partitions {
		call, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
		verified, err := lua.ReadTrust(call, r.Redis, r.Keys.ForVerify(p, r.id))
		cancel()
		if err != nil {
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say in which generation it was verified")
		}
		latest = max(latest, pipeline.Generation(verified.Generation))
	}
	for r.generation <= latest {
		var err error
		if r.generation, err = r.Store.NextGeneration(ctx, partitions); err != nil {
			return err
		}
	}
	return nil
}

// rebuildLost rebuilds the sales of a partition that Redis has lost as well.
func (r *round) rebuildLost(ctx context.Context, p pipeline.Partition, losses []loss) error {
	inFlight, err := r.inFlight(ctx, p, salesOf(losses))
	if err != nil {
		return err
	}
	for _, l := range losses {
		if err := r.rebuild(ctx, l, inFlight[l.watermark.SaleID]); err != nil {
			return err
		}
	}
	return nil
}

// logHome says what was found and done, for each sale of which something was.
func (v *Verifier) logHome(found []SaleLoss, took time.Duration) {
	for _, s := range found {
		if s.Restored+s.Ended+s.Refused+s.Missing == 0 && s.RedisBehind == "" {
			continue
		}
		v.Metrics.ordersRestored.Add(float64(s.Restored))
		v.Log.Error("orders that Postgres had forgotten were stored again; the payment provider knows which are paid",
			"sale", s.SaleID, "partition", s.Partition, "restored", s.Restored, "ended", s.Ended,
			"refused", s.Refused, "missing", s.Missing, "redis_behind", s.RedisBehind)
	}
	v.Log.Error("Postgres had gone back, and has again what Redis knows of", "sales", len(found), "took", took)
}

// Spared is the time that orders have for their payment at least, from an instant on by Postgres' clock.
type Spared struct {
	From    time.Time
	AtLeast time.Duration
}

// homecoming stores again what Postgres has forgotten of one sale on one partition, while it is closed.
type homecoming struct {
	*round
	at     pipeline.SalePartition
	since  time.Time        // when the loss was found, by Postgres' clock
	events []pipeline.Event // of the sale, in the stream
	report SaleLoss
}

// changed reports whether there is something to record.
func (h *homecoming) changed() bool {
	r := h.report
	return r.Settled > r.Stored || r.Restored+r.Ended+r.Refused+r.Missing+r.ReleasesLost+r.Extended > 0 ||
		r.RedisBehind != ""
}

// run takes the steps. Orders whose units Redis gave back are ended first: their buyers may have ordered again since,
// and the units be sold to others. Where Redis has lost something as well, a slot that is not there says nothing.
func (h *homecoming) run(ctx context.Context, released int64) error {
	if h.report.RedisBehind == "" {
		if err := h.endForgotten(ctx); err != nil {
			return err
		}
		if err := h.buryEnded(ctx); err != nil {
			return err
		}
	}
	if err := h.spare(ctx); err != nil {
		return err
	}
	if err := h.restore(ctx); err != nil {
		return err
	}
	return h.count(ctx, released)
}

// endForgotten ends the orders that Postgres has as live and that have no slot: only a release frees one.
func (h *homecoming) endForgotten(ctx context.Context) error {
	after := ""
	for {
		page, err := h.Ledger.LiveOrdersAfter(ctx, h.at, after, homePage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		after = page[len(page)-1].OrderID
		gone, err := h.withoutSlot(ctx, page)
		if err != nil {
			return err
		}
		if len(gone) > 0 {
			if _, err := h.Ledger.EndForgotten(ctx, h.generation, h.at.SaleID, gone); err != nil {
				return err
			}
		}
	}
}

// withoutSlot returns those of some orders that their buyers' slots do not name.
func (h *homecoming) withoutSlot(ctx context.Context, orders []pipeline.LedgerOrder) ([]string, error) {
	users := make([]string, len(orders))
	for i := range orders {
		users[i] = orders[i].UserID
	}
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	slots, err := redisstore.ReadSlots(ctx, h.Redis, h.Keys, h.at, users)
	if err != nil {
		return nil, err
	}
	var gone []string
	for i, slot := range slots {
		if slot.OrderID != orders[i].OrderID && slot.OrderID != redisstore.Unreadable {
			gone = append(gone, orders[i].OrderID)
		}
	}
	return gone, nil
}

// buryEnded rejects the orders of events in the stream whose units Redis gave back: they had been stored and had ended,
// and their events were not settled. A worker would make live orders of them that have no units.
func (h *homecoming) buryEnded(ctx context.Context) error {
	for rest := h.events; len(rest) > 0; {
		page := rest[:min(len(rest), homePage)]
		rest = rest[len(page):]
		orders := make([]pipeline.LedgerOrder, len(page))
		for i := range page {
			orders[i] = pipeline.LedgerOrder{OrderID: page[i].OrderID, UserID: page[i].UserID}
		}
		gone, err := h.withoutSlot(ctx, orders)
		if err != nil || len(gone) == 0 {
			if err != nil {
				return err
			}
			continue
		}
		isGone := make(map[string]bool, len(gone))
		for _, id := range gone {
			isGone[id] = true
		}
		var ended []pipeline.Event
		for i := range page {
			if isGone[page[i].OrderID] {
				ended = append(ended, page[i])
			}
		}
		unknown, err := h.withoutRow(ctx, h.at.SaleID, ended)
		if err != nil {
			return err
		}
		for i := range unknown {
			if err := h.reject(ctx, &unknown[i], "it had ended, and Postgres has forgotten how"); err != nil {
				return err
			}
		}
	}
	return nil
}

// reject ends an order that can't stand, with a dead letter.
func (h *homecoming) reject(ctx context.Context, e *pipeline.Event, why string) error {
	return h.Burier.BuryLost(ctx, e, "ledger:"+e.OrderID, "Postgres had forgotten this order: "+why)
}

// spare gives the orders that are still there more time to pay. Those that are stored again have all of theirs, from
// then on.
func (h *homecoming) spare(ctx context.Context) error {
	from, err := h.Ledger.Clock(ctx)
	if err != nil {
		return err
	}
	for after := ""; ; {
		last, n, err := h.Ledger.Spare(ctx, h.at, Spared{From: from, AtLeast: homeGrace}, after, homePage)
		h.report.Extended += n
		if err != nil || last == "" {
			return err
		}
		after = last
	}
}

// count counts what was done, and finds out how many accepts have left nothing but their number, so that they are not
// looked for again: their orders were stored and had ended.
func (h *homecoming) count(ctx context.Context, released int64) error {
	done, err := h.Ledger.CountHome(ctx, h.at, h.since)
	if err != nil {
		return err
	}
	h.report.Restored, h.report.Ended, h.report.Refused = done.Restored, done.Ended, done.Refused
	_, applied, err := h.Ledger.CountReleases(ctx, h.at)
	if err != nil {
		return err
	}
	h.report.ReleasesLost = max(0, released-applied)
	accepted, err := redisstore.ReadSale(ctx, h.Redis, h.Keys, h.at)
	if pipeline.KindOf(err) == pipeline.KindNotLoaded || redisstore.IsUnreadable(err) {
		return nil // a rebuild counts them
	}
	if err != nil || h.report.RedisBehind != "" {
		return err
	}
	h.report.Accepted = accepted.Accepted
	inFlight := int64(len(h.events))
	ids := func(yield func(string) bool) {
		for i := range h.events {
			if !yield(h.events[i].OrderID) {
				return
			}
		}
	}
	ledger, err := h.Store.Ledger(ctx, h.at.SaleID, ids, func(pipeline.LedgerOrder) error {
		inFlight--
		return nil
	}, nil, nil)
	if err != nil {
		return err
	}
	h.report.Missing = max(0, accepted.Accepted-ledger.ByPartition[h.at.Partition]-inFlight-ledger.LostOn[h.at.Partition])
	return nil
}
