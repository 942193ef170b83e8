package main

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// textbook is the pipeline as articles about flash sales describe it: each request runs a script of its own, and each
// message becomes a row of its own. It loses orders when something dies; it is here for what it costs.
type textbook struct {
	rdb    redis.UniversalClient
	pool   *pgxpool.Pool
	stream string
	buyers string
	stock  string
}

// textbookConsumers write at once. More of them gain nothing on a small machine.
const textbookConsumers = 4

var textbookScript = redis.NewScript(`
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 2 end
if tonumber(redis.call('HGET', KEYS[1], 'stock') or 0) < 1 then return 1 end
redis.call('HINCRBY', KEYS[1], 'stock', -1)
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('XADD', KEYS[3], '*', 'user', ARGV[1], 'order', ARGV[2])
return 0`)

func newTextbook(s *testbed) *textbook {
	p := s.sale.Partitions[0]
	return &textbook{
		rdb: s.rdb, pool: s.pool, stream: keys.Orders(p), buyers: keys.Buyers(p, saleID), stock: keys.Sale(p, saleID),
	}
}

// ServeHTTP accepts an order of one unit.
func (t *textbook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	takeOrder(w, r, func(ctx context.Context, o shopOrder) (int, error) {
		return textbookScript.Run(ctx, t.rdb, []string{t.stock, t.buyers, t.stream}, o.User, o.ID).Int()
	})
}

// start starts the consumers.
func (t *textbook) start(ctx context.Context) (stop func(), err error) {
	err = t.rdb.XGroupCreateMkStream(ctx, t.stream, "textbook", "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for i := range textbookConsumers {
		running.Go(func() { t.consume(ctx, i) })
	}
	return func() { cancel(); running.Wait() }, nil
}

func (t *textbook) consume(ctx context.Context, i int) {
	for ctx.Err() == nil {
		read, err := t.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: "textbook", Consumer: strconv.Itoa(i), Streams: []string{t.stream, ">"}, Count: 100,
			Block: 100 * time.Millisecond,
		}).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			continue
		}
		for _, stream := range read {
			for _, m := range stream.Messages {
				t.store(ctx, m)
			}
		}
	}
}

// store writes one row, and acknowledges its message.
func (t *textbook) store(ctx context.Context, m redis.XMessage) {
	user, _ := m.Values["user"].(string)
	order, _ := m.Values["order"].(string)
	if err := insertOrder(ctx, t.pool, shopOrder{ID: order, User: user}); err != nil {
		return
	}
	pipe := t.rdb.Pipeline()
	pipe.XAck(ctx, t.stream, "textbook", m.ID)
	pipe.XDel(ctx, t.stream, m.ID)
	_, _ = pipe.Exec(ctx) // what is left makes the round fail
}

// insertOrder writes one row.
func insertOrder(ctx context.Context, pool *pgxpool.Pool, o shopOrder) error {
	_, err := pool.Exec(ctx, `
		insert into orders (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, status, pay_by)
		values ($1, $2, $3, $4, 1, 0, 1, $5, 'awaiting_payment', now() + interval '15 minutes')
		on conflict do nothing`, saleID, o.ID, numberOf(o.ID), o.User, time.Now())
	return err
}

// numberOf makes an order number that no other order has.
func numberOf(order string) int64 {
	id := uuid.MustParse(order)
	var n int64
	for _, b := range id[8:] {
		n = n<<8 | int64(b)
	}
	return n & (1<<62 - 1)
}
