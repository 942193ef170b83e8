package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/notification"
)

const (
	// releaseEvery is how long a freed unit may wait: it is on sale again within a second.
	releaseEvery = 500 * time.Millisecond
	// releasePage is how many releases are read at once.
	releasePage = lua.MaxReleaseBatch
	// releaseTimeout bounds one script call.
	releaseTimeout = 3 * time.Second
)

// ReleaseStore is the outbox of releases.
type ReleaseStore interface {
	UnappliedReleases(ctx context.Context, after pipeline.SalePartition, limit int) ([]pipeline.Release, error)
	MarkReleasesApplied(ctx context.Context, releases []pipeline.Release) error
	// SettleRetiredReleases marks those of sales that have left Redis: there is nothing to give them back to.
	SettleRetiredReleases(ctx context.Context) error
}

// Releaser gives the units and the slots of ended orders back to Redis; the script hands freed units over to the
// waitlist. Running twice, at once or after a crash at any point, gives nothing back twice: the script frees only a
// slot that still names the order (I7).
type Releaser struct {
	rdb       redis.UniversalClient
	keys      pipeline.Keys
	store     ReleaseStore
	metrics   *Metrics
	log       *slog.Logger
	handOvers *notification.HandOverNotifier
}

// NewReleaser returns a Releaser over both stores. Without metrics (nil) nothing is exported.
func NewReleaser(
	rdb redis.UniversalClient, keys pipeline.Keys, store ReleaseStore, handOvers *notification.HandOverNotifier,
	m *Metrics, log *slog.Logger,
) *Releaser {
	if m == nil {
		m = NewMetrics(nil)
	}
	return &Releaser{rdb: rdb, keys: keys, store: store, handOvers: handOvers, metrics: m, log: log}
}

// Job applies releases as they appear.
func (r *Releaser) Job() pipeline.Job {
	return pipeline.Job{Name: "release", Every: releaseEvery, Run: r.Apply}
}

// Apply gives back everything that is due. What Redis can't take now, because it does not have the sale, remains due,
// and delays nothing of other sales and partitions, however much it is.
func (r *Releaser) Apply(ctx context.Context) error {
	if err := r.store.SettleRetiredReleases(ctx); err != nil {
		return err
	}
	var errs []error
	var after pipeline.SalePartition // the last one that failed; those before it failed or are done
	for ctx.Err() == nil {
		due, err := r.store.UnappliedReleases(ctx, after, releasePage)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		failed, err := r.ApplyReleases(ctx, due)
		if err != nil {
			after, errs = failed, append(errs, err)
		}
		if len(due) < releasePage {
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// ApplyReleases gives back some releases. It returns the last group that failed, besides the errors of all.
func (r *Releaser) ApplyReleases(
	ctx context.Context, due []pipeline.Release,
) (failed pipeline.SalePartition, err error) {
	groups := map[pipeline.SalePartition][]pipeline.Release{}
	for _, one := range due {
		g := pipeline.SalePartition{SaleID: one.SaleID, Partition: one.Partition}
		groups[g] = append(groups[g], one)
	}
	var errs []error
	for _, g := range slices.SortedFunc(maps.Keys(groups), pipeline.SalePartition.Compare) {
		if ctx.Err() != nil {
			return failed, errors.Join(
				append(errs, pipeline.Wrap(pipeline.KindUnavailable, ctx.Err(), "not all releases were applied in time"))...)
		}
		if err := r.applyGroup(ctx, g, groups[g]); err != nil {
			failed, errs = g, append(errs, err)
		}
	}
	return failed, errors.Join(errs...)
}

func (r *Releaser) applyGroup(ctx context.Context, g pipeline.SalePartition, releases []pipeline.Release) error {
	ctx, cancel := context.WithTimeout(pipeline.Uninterrupted(ctx), releaseTimeout)
	defer cancel()
	items := make([]lua.ReleaseItem, len(releases))
	for i, one := range releases {
		items[i] = lua.ReleaseItem{UserID: one.UserID, OrderID: one.OrderID, Withdrawn: one.Withdrawn}
	}
	given, handed, err := lua.Release(
		ctx, r.rdb, r.keys.ForSale(g.Partition, g.SaleID), g.SaleID, pipeline.HandOverMaxLag, items,
	)
	if errors.Is(err, lua.ErrUntrusted) || errors.Is(err, lua.ErrNotLoaded) {
		return pipeline.Wrap(pipeline.KindNotLoaded, err, "stock of sale "+g.SaleID+" can't be given back yet")
	}
	if err != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "release orders of sale "+g.SaleID)
	}
	r.handOvers.Publish(ctx, g.SaleID, g.Partition, handed)
	back := 0
	for i := range releases {
		if releases[i].GivenBack = given[i]; given[i] {
			back++
		}
	}
	if err := r.store.MarkReleasesApplied(ctx, releases); err != nil {
		return err
	}
	r.metrics.released.Add(float64(back))
	r.log.Info("stock given back", "sale", g.SaleID, "partition", g.Partition, "orders", back, "of", len(releases))
	return nil
}
