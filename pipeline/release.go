package pipeline

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
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
	UnappliedReleases(ctx context.Context, after ReleaseGroup, limit int) ([]Release, error)
	MarkReleased(ctx context.Context, releases []Release) error
}

// Releaser gives back what ended orders held, and hands over to those who wait (handover.go). Running twice, at once or
// after a crash at any point, gives nothing back twice: the script frees only a slot that still names the order (I7).
type Releaser struct {
	rdb     redis.UniversalClient
	keys    Keys
	store   ReleaseStore
	metrics *Metrics
	log     *slog.Logger
	handing handing
}

// NewReleaser returns a Releaser over both stores.
func NewReleaser(rdb redis.UniversalClient, keys Keys, store ReleaseStore, m *Metrics, log *slog.Logger) *Releaser {
	return &Releaser{
		rdb: rdb, keys: keys, store: store, metrics: m, log: log,
		handing: handing{news: NewNews(rdb, keys, log), metrics: m, log: log},
	}
}

// Job applies releases as they appear.
func (r *Releaser) Job() Job { return Job{Name: "release", Every: releaseEvery, Run: r.Apply} }

// ReleaseGroup is what one script call can give back. Releases are read in the order of their groups: by sale, then by
// partition. The zero value is before all of them.
type ReleaseGroup struct {
	SaleID    string
	Partition Partition
}

func (g ReleaseGroup) compare(other ReleaseGroup) int {
	return cmp.Or(cmp.Compare(g.SaleID, other.SaleID), cmp.Compare(g.Partition, other.Partition))
}

// Apply gives back everything that is due. What Redis can't take now, because it does not hold the sale, stays due, and
// keeps nothing of other sales and partitions waiting, however much it is.
func (r *Releaser) Apply(ctx context.Context) error {
	var errs []error
	var after ReleaseGroup // the last one that failed; those before it failed or are done
	for ctx.Err() == nil {
		due, err := r.store.UnappliedReleases(ctx, after, releasePage)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		failed, err := r.applyAll(ctx, due)
		if err != nil {
			after, errs = failed, append(errs, err)
		}
		if len(due) < releasePage {
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// applyAll returns the last group that failed, besides the errors of all.
func (r *Releaser) applyAll(ctx context.Context, due []Release) (failed ReleaseGroup, err error) {
	groups := map[ReleaseGroup][]Release{}
	for _, one := range due {
		g := ReleaseGroup{one.SaleID, one.Partition}
		groups[g] = append(groups[g], one)
	}
	var errs []error
	for _, g := range slices.SortedFunc(maps.Keys(groups), ReleaseGroup.compare) {
		if ctx.Err() != nil {
			return failed, errors.Join(append(errs, Wrap(KindUnavailable, ctx.Err(), "not all releases were applied in time"))...)
		}
		if err := r.applyGroup(ctx, g, groups[g]); err != nil {
			failed, errs = g, append(errs, err)
		}
	}
	return failed, errors.Join(errs...)
}

func (r *Releaser) applyGroup(ctx context.Context, g ReleaseGroup, releases []Release) error {
	ctx, cancel := context.WithTimeout(begun(ctx), releaseTimeout)
	defer cancel()
	items := make([]lua.ReleaseItem, len(releases))
	for i, one := range releases {
		items[i] = lua.ReleaseItem{UserID: one.UserID, OrderID: one.OrderID}
	}
	given, handed, err := lua.Release(ctx, r.rdb, r.keys.release(g.Partition, g.SaleID), g.SaleID, handOverMaxLag, items)
	if errors.Is(err, lua.ErrUntrusted) || errors.Is(err, lua.ErrNotLoaded) {
		return Wrap(KindNotLoaded, err, "stock of sale "+g.SaleID+" can't be given back yet")
	}
	if err != nil {
		return Wrap(KindUnavailable, err, "release orders of sale "+g.SaleID)
	}
	r.handing.note(ctx, g.SaleID, g.Partition, handed)
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
	r.log.Info("stock given back", "sale", g.SaleID, "partition", g.Partition, "orders", back, "of", len(releases))
	return nil
}
