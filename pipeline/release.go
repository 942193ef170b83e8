package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

const (
	// releaseEvery is how long a freed unit may wait: it is on sale again within a second.
	releaseEvery = 500 * time.Millisecond
	// releasePage is how many releases are read at once.
	releasePage = lua.MaxReleaseBatch
	// releaseTimeout bounds one script call.
	releaseTimeout = 3 * time.Second
)

// Release is stock and a slot to give back: one row of the outbox.
type Release struct {
	SaleID    string
	OrderID   string
	Sequence  int64
	UserID    string
	Partition Partition
	GivenBack bool // set when it is marked: whether Redis gave something back, or the slot no longer named the order
}

// ReleaseStore is the outbox of releases.
type ReleaseStore interface {
	UnappliedReleases(ctx context.Context, limit int) ([]Release, error)
	MarkReleased(ctx context.Context, releases []Release) error
}

// Releaser gives back what ended orders held. Running twice, at once or after a crash at any point, gives nothing back
// twice: the script frees only a slot that still names the order (I7).
type Releaser struct {
	rdb     redis.UniversalClient
	keys    Keys
	store   ReleaseStore
	metrics *Metrics
	log     *slog.Logger
}

// NewReleaser returns a Releaser over both stores.
func NewReleaser(rdb redis.UniversalClient, keys Keys, store ReleaseStore, m *Metrics, log *slog.Logger) *Releaser {
	return &Releaser{rdb: rdb, keys: keys, store: store, metrics: m, log: log}
}

// Job applies releases as they appear.
func (r *Releaser) Job() Job { return Job{Name: "release", Every: releaseEvery, Run: r.Apply} }

// Apply gives back everything that is due. What Redis can't take now, because it does not hold the sale, stays due.
func (r *Releaser) Apply(ctx context.Context) error {
	for ctx.Err() == nil {
		due, err := r.store.UnappliedReleases(ctx, releasePage)
		if err != nil || len(due) == 0 {
			return err
		}
		applied, err := r.applyAll(ctx, due)
		if err != nil {
			return err
		}
		if applied < len(due) || len(due) < releasePage {
			return nil
		}
	}
	return ctx.Err()
}

type releaseGroup struct {
	sale      string
	partition Partition
}

func (r *Releaser) applyAll(ctx context.Context, due []Release) (applied int, err error) {
	groups := map[releaseGroup][]Release{}
	for _, one := range due {
		g := releaseGroup{one.SaleID, one.Partition}
		groups[g] = append(groups[g], one)
	}
	var errs []error
	for g, releases := range groups {
		if err := r.applyGroup(ctx, g, releases); err != nil {
			errs = append(errs, err)
			continue
		}
		applied += len(releases)
	}
	return applied, errors.Join(errs...)
}

func (r *Releaser) applyGroup(ctx context.Context, g releaseGroup, releases []Release) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	items := make([]lua.ReleaseItem, len(releases))
	for i, one := range releases {
		items[i] = lua.ReleaseItem{UserID: one.UserID, OrderID: one.OrderID}
	}
	keys := lua.ReleaseKeys{Sale: r.keys.Sale(g.partition, g.sale), Buyers: r.keys.Buyers(g.partition, g.sale)}
	given, err := lua.Release(ctx, r.rdb, keys, items)
	if err != nil {
		return Wrap(KindUnavailable, err, "release orders of sale "+g.sale)
	}
	back := 0
	for i := range releases {
		if releases[i].GivenBack = given[i]; given[i] {
			back++
		}
	}
	if err := r.store.MarkReleased(ctx, releases); err != nil {
		return err
	}
	r.metrics.released.Add(float64(back))
	r.log.Info("stock given back", "sale", g.sale, "partition", g.partition, "orders", back, "of", len(releases))
	return nil
}
