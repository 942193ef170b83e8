package deadletter

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/ordernumber"
)

// LetterStore is where dead letters are kept.
type LetterStore interface {
	Letter(ctx context.Context, id int64) (Letter, error)
	// BeginReplay notes what is about to be asked for, unless an earlier try noted something, and returns what is noted.
	BeginReplay(ctx context.Context, id int64, orderID string, as ReplayAs) (string, ReplayAs, error)
	// EndReplay notes that the try made no order. The order id is kept.
	EndReplay(ctx context.Context, id int64) error
	// ResolveLetter returns when the letter was resolved. KindConflict: it was already, or a replay of it is under way.
	ResolveLetter(ctx context.Context, id int64, how LetterResolution) (time.Time, error)
	// OrderReleases are those of an order that are not applied.
	OrderReleases(ctx context.Context, saleID, orderID string) ([]pipeline.Release, error)
}

// ReplayStore is what a replay needs of Postgres.
type ReplayStore interface {
	LetterStore
	lifecycle.OrderSource
	Sale(ctx context.Context, id string) (*pipeline.Sale, error)
	Generation(ctx context.Context) (pipeline.Generation, error)
	PersistOrders(
		ctx context.Context, generation pipeline.Generation, events []pipeline.Event,
	) ([]pipeline.PersistOutcome, error)
}

// Replayer resolves dead letters, as an operator asks for it: it makes an order of one, or notes that none shall be
// made.
type Replayer struct {
	rdb      redis.UniversalClient
	keys     pipeline.Keys
	store    ReplayStore
	releaser *lifecycle.Releaser
	numbers  *ordernumber.Generator
	log      *slog.Logger
}

// NewReplayer returns a Replayer over both stores.
func NewReplayer(
	rdb redis.UniversalClient, keys pipeline.Keys, store ReplayStore, releaser *lifecycle.Releaser, log *slog.Logger,
) *Replayer {
	return &Replayer{
		rdb:      rdb,
		keys:     keys,
		store:    store,
		releaser: releaser,
		numbers:  ordernumber.NewGenerator(rdb, keys),
		log:      log,
	}
}
