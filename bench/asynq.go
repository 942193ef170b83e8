package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqPipeline is a shop built on a task queue: each request runs a script that decides, and is then put into asynq's
// queue, whose workers store it. One handler stores one row for each task; or, grouped, asynq makes one task of many
// orders, which are stored in batches. An order that dies between script and queue is lost; it is here for what it
// costs.
type asynqPipeline struct {
	testbed *testbed
	grouped bool
	client  atomic.Pointer[asynq.Client] // of this round: a client remembers which queues it has announced
	queued  atomic.Int64                 // orders of this round
	stored  atomic.Int64
}

const (
	orderTask   = "order"
	ordersTask  = "orders"
	asynqGroups = 4
	// asynqHandlers run at once. Each waits for Postgres most of the time.
	asynqHandlers = 16
	// asynqIdle is how long a server that found its queue empty waits. The default of a second would be most of a round.
	asynqIdle = 5 * time.Millisecond
	// asynqGrace is how long a group waits for more orders, the shortest that asynq takes.
	asynqGrace = time.Second
)

// asynqScript decides like the textbook's, and leaves it to the queue to pass the order on.
var asynqScript = redis.NewScript(`
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 2 end
if tonumber(redis.call('HGET', KEYS[1], 'stock') or 0) < 1 then return 1 end
redis.call('HINCRBY', KEYS[1], 'stock', -1)
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return 0`)

// shopOrder is an order on its way through a queue.
type shopOrder struct {
	ID   string `json:"id"`
	User string `json:"user"`
}

// ServeHTTP accepts an order of one unit.
func (a *asynqPipeline) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := a.testbed.sale.Partitions[0]
	decide := func(ctx context.Context, o shopOrder) (int, error) {
		code, err := asynqScript.Run(ctx, a.testbed.rdb, []string{keys.Sale(p, saleID), keys.Buyers(p, saleID)}, o.User,
			o.ID).Int()
		if err != nil || code != 0 {
			return code, err
		}
		return code, a.enqueue(ctx, o)
	}
	takeOrder(w, r, decide)
}

func (a *asynqPipeline) enqueue(ctx context.Context, o shopOrder) error {
	payload, err := json.Marshal(o)
	if err != nil {
		return err
	}
	opts := []asynq.Option{asynq.MaxRetry(0)}
	if a.grouped {
		opts = append(opts, asynq.Group(fmt.Sprint(int(o.ID[len(o.ID)-1])%asynqGroups)))
	}
	if _, err := a.client.Load().EnqueueContext(ctx, asynq.NewTask(orderTask, payload), opts...); err != nil {
		return err
	}
	a.queued.Add(1)
	return nil
}

// start starts asynq's server.
func (a *asynqPipeline) start(context.Context) (stop func(), err error) {
	a.queued.Store(0)
	a.stored.Store(0)
	a.client.Store(asynq.NewClientFromRedisClient(a.testbed.rdb))
	config := asynq.Config{
		Concurrency: asynqHandlers, TaskCheckInterval: asynqIdle, LogLevel: asynq.ErrorLevel,
		ShutdownTimeout: controlTimeout,
	}
	if a.grouped {
		config.GroupGracePeriod, config.GroupMaxDelay = asynqGrace, asynqGrace
		config.GroupAggregator = asynq.GroupAggregatorFunc(aggregate)
	}
	server := asynq.NewServerFromRedisClient(a.testbed.rdb, config)
	tasks := asynq.NewServeMux()
	tasks.HandleFunc(orderTask, a.storeOne)
	tasks.HandleFunc(ordersTask, a.storeMany)
	return server.Shutdown, server.Start(tasks)
}

// left is how many orders have no row yet.
func (a *asynqPipeline) left(context.Context) (int64, error) {
	return a.queued.Load() - a.stored.Load(), nil
}

func (a *asynqPipeline) storeOne(ctx context.Context, task *asynq.Task) error {
	var o shopOrder
	if err := json.Unmarshal(task.Payload(), &o); err != nil {
		return err
	}
	if err := insertOrder(ctx, a.testbed.pool, o); err != nil {
		return err
	}
	a.stored.Add(1)
	return nil
}

// aggregate makes one task of a group's.
func aggregate(_ string, tasks []*asynq.Task) *asynq.Task {
	orders := make([]json.RawMessage, len(tasks))
	for i, task := range tasks {
		orders[i] = task.Payload()
	}
	payload, err := json.Marshal(orders)
	if err != nil {
		payload = nil // its handler will say so
	}
	return asynq.NewTask(ordersTask, payload, asynq.MaxRetry(0))
}

func (a *asynqPipeline) storeMany(ctx context.Context, task *asynq.Task) error {
	var orders []shopOrder
	if err := json.Unmarshal(task.Payload(), &orders); err != nil {
		return err
	}
	for batch := range slices.Chunk(orders, a.testbed.opts.Batch) {
		ids, numbers, users := make([]string, len(batch)), make([]int64, len(batch)), make([]string, len(batch))
		for i, o := range batch {
			ids[i], numbers[i], users[i] = o.ID, numberOf(o.ID), o.User
		}
		_, err := a.testbed.pool.Exec(ctx, `
			insert into orders (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, status, pay_by)
			select $1, i.id, i.number, i.user_id, 1, 0, 1, $5, 'awaiting_payment', now() + interval '15 minutes'
			from unnest($2::uuid[], $3::bigint[], $4::text[]) as i (id, number, user_id)
			on conflict do nothing`, saleID, ids, numbers, users, time.Now())
		if err != nil {
			return err
		}
		a.stored.Add(int64(len(batch)))
	}
	return nil
}

// takeOrder reads a request for one unit, has it decided, and answers. The code 0 is an accept.
func takeOrder(w http.ResponseWriter, r *http.Request, decide func(context.Context, shopOrder) (code int, err error)) {
	var body struct {
		Quantity int `json:"quantity"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Quantity != 1 {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	o := shopOrder{ID: uuid.Must(uuid.NewV7()).String(), User: r.Header.Get("X-User-Id")}
	code, err := decide(r.Context(), o)
	switch {
	case err != nil:
		http.Error(w, "redis", http.StatusServiceUnavailable)
	case code != 0:
		http.Error(w, "refused", http.StatusConflict)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		// an error means that the client is gone
		_ = json.NewEncoder(w).Encode(map[string]string{"order_id": o.ID, "status": "queued"})
	}
}
