package notification

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
)

const (
	// publishTimeout bounds publishing: subscribers also read by themselves, so a message may be lost but must not delay.
	publishTimeout = time.Second
	// publishBatch is how many orders one message names: some 100 KB.
	publishBatch = 1000
)

// Change names an order whose status in Postgres changed.
type Change struct {
	Partition pipeline.Partition
	SaleID    string
	OrderID   string
}

// Notifier publishes to every process that orders changed, over Redis' publish/subscribe. A message says which orders,
// not how they are now: subscribers read Postgres, so that messages which overtake each other, come twice or never do
// no harm.
type Notifier struct {
	rdb  redis.UniversalClient
	keys pipeline.Keys
	log  *slog.Logger
}

// NewNotifier returns a Notifier.
func NewNotifier(rdb redis.UniversalClient, keys pipeline.Keys, log *slog.Logger) *Notifier {
	return &Notifier{rdb: rdb, keys: keys, log: log}
}

// Publish publishes what has been committed. It takes at most a second, works although the caller's context has ended,
// and never fails: what is not published is found by reading.
func (n *Notifier) Publish(ctx context.Context, changed []Change) {
	if len(changed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	lines := map[pipeline.Partition][]string{}
	for _, c := range changed {
		lines[c.Partition] = append(lines[c.Partition], c.SaleID+" "+c.OrderID)
	}
	pipe := n.rdb.Pipeline()
	for p, of := range lines {
		for batch := range slices.Chunk(of, publishBatch) {
			pipe.Publish(ctx, n.keys.Changes(p), strings.Join(batch, "\n"))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		n.log.Debug("changes were not published; subscribers find them by reading", "orders", len(changed), "error", err)
	}
}

// PublishOrders publishes that these orders changed.
func (n *Notifier) PublishOrders(ctx context.Context, orders []pipeline.Order) {
	changed := make([]Change, len(orders))
	for i := range orders {
		changed[i] = Change{orders[i].Partition, orders[i].SaleID, orders[i].ID}
	}
	n.Publish(ctx, changed)
}

// parseChanges reads a message of Publish. Lines that Publish would not write are left out.
func parseChanges(p pipeline.Partition, message string) []Change {
	var changed []Change
	for line := range strings.SplitSeq(message, "\n") {
		sale, order, ok := strings.Cut(line, " ")
		if ok && pipeline.ValidSaleID(sale) && order != "" {
			changed = append(changed, Change{p, sale, order})
		}
	}
	return changed
}
