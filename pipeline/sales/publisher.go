package sales

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/notification"
	"sluice/pipeline/redisstore"
)

// loadTimeout bounds putting one sale into Redis, or removing it.
const loadTimeout = 3 * time.Second

// Store is where sales are defined and changed.
type Store interface {
	Source
	ReductionStore
	CreateSale(ctx context.Context, sale *pipeline.Sale) error
	ChangeSale(ctx context.Context, id, actor string, change pipeline.SaleChange) (*pipeline.Sale, error)
	// BeginPublish says that a sale is about to be put into Redis, or changed there, and returns once Postgres' standbys
	// have what was read of it. It returns the partitions on which Redis had it before. MarkLoaded says that it is there.
	BeginPublish(ctx context.Context, id string) ([]pipeline.Partition, error)
	MarkLoaded(ctx context.Context, id string) error
}

// Publisher defines and changes sales: first in Postgres, which is authoritative, then in Redis. A crash in between is
// repaired by the next process that publishes the sale, because every step may be repeated.
type Publisher struct {
	rdb        redis.UniversalClient
	keys       pipeline.Keys
	store      Store
	partitions int
	log        *slog.Logger
	handOvers  *notification.HandOverNotifier
	bringer    Bringer // nil: nobody moves units
}

// NewPublisher returns a Publisher for an installation with so many partitions.
func NewPublisher(
	rdb redis.UniversalClient, keys pipeline.Keys, store Store, partitions int, log *slog.Logger,
) *Publisher {
	return &Publisher{
		rdb: rdb, keys: keys, store: store, partitions: partitions, log: log,
		handOvers: notification.NewHandOverNotifier(notification.NewNotifier(rdb, keys, log), nil, log),
	}
}

// Count counts the orders that a change of a sale makes for people on its waitlist.
func (p *Publisher) Count(m *notification.Metrics) *Publisher {
	p.handOvers = notification.NewHandOverNotifier(notification.NewNotifier(p.rdb, p.keys, p.log), m, p.log)
	return p
}

// Create defines a sale and loads it into Redis. Errors: KindInvalid, KindConflict (the id exists), KindUnavailable.
// When only Redis was unreachable the sale exists, and is loaded as soon as a worker can.
func (p *Publisher) Create(ctx context.Context, sale *pipeline.Sale) error {
	if err := sale.Validate(); err != nil {
		return err
	}
	placed, err := p.place(ctx, sale)
	if err != nil {
		return err
	}
	sale.State, sale.Partitions, sale.Spread = pipeline.SaleActive, placed, 0
	if err := p.store.CreateSale(ctx, sale); err != nil {
		return err
	}
	return p.Publish(ctx, sale)
}

// Change changes a sale and publishes the change to Redis. Errors: KindInvalid, KindNotFound, KindConflict (closed is
// final), KindUnavailable; after the last one the change may stand in Postgres, and reaches Redis as soon as a worker
// can.
func (p *Publisher) Change(ctx context.Context, id, actor string, change pipeline.SaleChange) (*pipeline.Sale, error) {
	if change.ClosesAt != nil && !change.ClosesAt.After(time.Now()) {
		return nil, pipeline.Errorf(pipeline.KindInvalid,
			"closes_at is over: nobody could order any more; close the sale to end it now")
	}
	sale, err := p.store.ChangeSale(ctx, id, actor, change)
	if pipeline.KindOf(err) == pipeline.KindUnavailable {
		return nil, pipeline.Wrap(
			pipeline.KindUnavailable, err,
			"Postgres did not confirm the change, which may stand all the same: look at the sale before you repeat it",
		)
	}
	if err != nil {
		return nil, err
	}
	if err := p.Publish(ctx, sale); err != nil {
		return sale, pipeline.Wrap(
			pipeline.KindOf(err), err, "the change stands, don't repeat it; Redis has not got it yet, a worker brings it there",
		)
	}
	return sale, nil
}

// Publish brings Redis up to a sale's definition: it loads a sale that was never loaded, and adjusts one that is older.
// A sale that was loaded once and is gone is not loaded again here: its orders would be sold a second time. That is a
// KindNotLoaded error, and needs a rebuild; a sale that is over may be gone. A reduction that is under way is ended.
func (p *Publisher) Publish(ctx context.Context, sale *pipeline.Sale) error {
	if !sale.RetiredAt.IsZero() { // Redis has nothing of it, and gets nothing
		return nil
	}
	if sale.ReduceTo > 0 {
		_, err := p.endReduction(ctx, sale)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	started, err := p.store.BeginPublish(ctx, sale.ID)
	if err != nil {
		return err
	}
	var failed error // on one partition, which holds no other up
	for _, partition := range sale.Partitions {
		// What is stored proves that it was loaded, even where the process died before it could record that.
		loaded := !sale.LoadedAt.IsZero() || slices.Contains(started, partition)
		failed = errors.Join(failed, p.publishShare(ctx, sale, partition, loaded))
	}
	if failed != nil || !sale.LoadedAt.IsZero() {
		return failed
	}
	return p.store.MarkLoaded(ctx, sale.ID)
}

func (p *Publisher) publishShare(
	ctx context.Context, sale *pipeline.Sale, partition pipeline.Partition, wasLoaded bool,
) error {
	key, share := p.keys.Sale(partition, sale.ID), sale.ShareOf(partition, sale.Total)
	fields := SaleFields(sale, partition, share)
	if !wasLoaded {
		if err := redisstore.CreateGroups(ctx, p.rdb, p.keys, p.partitions); err != nil {
			return err
		}
		switch loaded, err := lua.Load(ctx, p.rdb, key, p.keys.Trusted(partition), fields); {
		case err != nil:
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not load the sale")
		case loaded == lua.LoadUntrusted:
			return pipeline.Errorf(
				pipeline.KindNotLoaded,
				"Redis is not verified yet; the sale is loaded as soon as it is, while an api or a worker runs",
			)
		case loaded == lua.LoadLoaded:
			p.log.Info("sale loaded", "sale", sale.ID, "partition", partition, "stock", share)
			return nil
		}
	}
	result, err := p.adjust(ctx, sale, partition, fields)
	switch {
	case result == lua.AdjustBelowTaken:
		return pipeline.Errorf(pipeline.KindConflict, "more units of sale %s are taken than its new total", sale.ID)
	case result == lua.AdjustAbsent && mayBeGone(sale, time.Now()):
		return nil
	}
	return err
}

// mayBeGone reports whether a sale is over for so long that Redis need not have it any more: a day after its last order
// could be paid, as db.Watermarks has it.
func mayBeGone(sale *pipeline.Sale, now time.Time) bool {
	return now.Sub(sale.ClosesAt) > sale.PaymentWindow+listedAfterClosing
}

// adjust has a partition follow a definition. The code is AdjustAdjusted, AdjustCurrent or AdjustBelowTaken where there
// is no error.
func (p *Publisher) adjust(
	ctx context.Context, sale *pipeline.Sale, partition pipeline.Partition, fields lua.SaleFields,
) (lua.AdjustCode, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	result, handed, err := lua.Adjust(
		ctx, p.rdb, p.keys.ForSale(partition, sale.ID), sale.ID, pipeline.HandOverMaxLag, fields,
	)
	p.handOvers.Publish(ctx, sale.ID, partition, handed)
	switch {
	case errors.Is(err, lua.ErrUntrusted):
		return "", pipeline.Wrap(pipeline.KindNotLoaded, err,
			"Redis is not verified yet, so it can't take units out of a sale")
	case err != nil:
		return "", pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not take the change")
	case result == lua.AdjustAbsent:
		return result, pipeline.Errorf(pipeline.KindNotLoaded, "Redis has lost sale %s", sale.ID)
	case result == lua.AdjustAdjusted:
		p.log.Info("sale adjusted", "sale", sale.ID, "partition", partition, "version", sale.Version)
	}
	return result, nil
}

// SaleFields are a sale's definition on a partition, with so many units left.
func SaleFields(sale *pipeline.Sale, partition pipeline.Partition, stock int64) lua.SaleFields {
	return lua.SaleFields{
		Stock: stock, Total: sale.ShareOf(partition, sale.Total), OpensMS: sale.OpensAt.UnixMilli(),
		ClosesMS: sale.ClosesAt.UnixMilli(), MaxQuantity: sale.MaxQuantity, State: string(sale.State), Version: sale.Version,
		Waitlist: sale.ShareOf(partition, sale.Waitlist), Group: sale.LimitGroup, GroupLimit: sale.GroupLimit,
	}
}

// publishEvery is how late a change may reach Redis when the process that made it died half-way.
const publishEvery = 2 * time.Second

// Job publishes every sale of a catalogue that is not in Redis as Postgres defines it. It repairs what a crash between
// the two left behind.
func (p *Publisher) Job(sales *Catalogue) pipeline.Job {
	return pipeline.Job{Name: "publish", Every: publishEvery, Run: func(ctx context.Context) error {
		var errs []error
		for _, sale := range sales.List(time.Now(), CatalogueLimit) {
			errs = append(errs, p.publishIfBehind(ctx, sale))
		}
		return errors.Join(errs...)
	}}
}

func (p *Publisher) publishIfBehind(ctx context.Context, sale *pipeline.Sale) error {
	behind, err := p.behind(ctx, sale)
	if err != nil || !behind {
		return err
	}
	// The catalogue may not have heard yet that the sale was loaded, and so would load a sale that Redis has lost.
	newest, err := p.store.Sale(ctx, sale.ID)
	if err != nil {
		return err
	}
	return p.Publish(ctx, newest)
}

func (p *Publisher) behind(ctx context.Context, sale *pipeline.Sale) (bool, error) {
	if sale.LoadedAt.IsZero() || sale.ReduceTo > 0 {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	for _, partition := range sale.Partitions {
		published, err := redisstore.ReadSale(
			ctx, p.rdb, p.keys, pipeline.SalePartition{SaleID: sale.ID, Partition: partition},
		)
		if pipeline.KindOf(err) == pipeline.KindNotLoaded {
			return false, pipeline.Errorf(pipeline.KindNotLoaded, "Redis has lost sale %s", sale.ID)
		}
		if err != nil {
			return false, err
		}
		if published.Version < sale.Version {
			return true, nil
		}
	}
	return false, nil
}
