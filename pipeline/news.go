package pipeline

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// newsTimeout bounds telling: whoever waits also looks by himself, so news may be lost but must not delay.
	newsTimeout = time.Second
	// newsBatch is how many orders one message names: some 100 KB.
	newsBatch = 1000
)

// Changed names an order whose status in Postgres changed.
type Changed struct {
	Partition Partition
	SaleID    string
	OrderID   string
}

// News tells every process that orders changed, over Redis' publish/subscribe. A message says which orders, not how they
// are now: readers ask Postgres, so that news which overtake each other, come twice or never do no harm.
type News struct {
	rdb  redis.UniversalClient
	keys Keys
	log  *slog.Logger
}

// NewNews returns a teller of news.
func NewNews(rdb redis.UniversalClient, keys Keys, log *slog.Logger) *News {
	return &News{rdb: rdb, keys: keys, log: log}
}

// Tell publishes what has been committed. It takes at most a second, works although the caller's context has ended, and
// never fails: what is not told is found by looking.
func (n *News) Tell(ctx context.Context, changed []Changed) {
	if len(changed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), newsTimeout)
	defer cancel()
	lines := map[Partition][]string{}
	for _, c := range changed {
		lines[c.Partition] = append(lines[c.Partition], c.SaleID+" "+c.OrderID)
	}
	pipe := n.rdb.Pipeline()
	for p, of := range lines {
		for batch := range slices.Chunk(of, newsBatch) {
			pipe.Publish(ctx, n.keys.News(p), strings.Join(batch, "\n"))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		n.log.Debug("news were not told; those who wait look by themselves", "orders", len(changed), "error", err)
	}
}

// TellOrders tells that these orders changed.
func (n *News) TellOrders(ctx context.Context, orders []Order) {
	changed := make([]Changed, len(orders))
	for i := range orders {
		changed[i] = Changed{orders[i].Partition, orders[i].SaleID, orders[i].ID}
	}
	n.Tell(ctx, changed)
}

// ReadNews reads a message of Tell. Lines that are not ours are left out.
func ReadNews(p Partition, message string) []Changed {
	var changed []Changed
	for line := range strings.SplitSeq(message, "\n") {
		sale, order, ok := strings.Cut(line, " ")
		if ok && ValidSaleID(sale) && order != "" {
			changed = append(changed, Changed{p, sale, order})
		}
	}
	return changed
}
