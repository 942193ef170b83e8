package crashpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"sluice/internal/faultnet"
)

// orders is the whole of a worker's loop: good orders, some that a dead and a hanging worker left, an entry that
// can't be read, an accept whose number another order has, an entry that Postgres refuses, what a closed order has to
// give back, and a sale that its maker did not live to put into Redis.
func orders() *scenario {
	return &scenario{
		name: "worker", program: "worker",
		steps: []string{
			"redis xgroup create", "redis xgroup createconsumer", "redis set worker", // joined
			// fetched, locked, persisted, settled
			"redis xreadgroup", "redis try_many", "postgres persist", "redis settle",
			"postgres explain", "redis xpending list", "postgres begin", "postgres bury", "postgres commit", // buried
			"redis claim", "redis xautoclaim", // reclaimed
			"redis run_once release", "postgres read releases", "redis release", "postgres mark released", // given back
			"redis run_once publish", "redis load", "postgres mark loaded", // published
			"redis run_once watch", "postgres read all watermarks", "redis hmget", // compared
		},
		prepare: prepareOrders,
		done:    ordersDone,
		recover: func(r *run) {
			r.takeOver("worker")
			r.eventually("everything is settled", func() bool { return ordersDone(r) })
		},
		check: checkOrders,
	}
}

const secondSale = "second"

func prepareOrders(r *run) {
	r.Helper()
	sale := r.openSale()
	r.accept(sale, "closed")
	r.persist()
	r.exec(1, `update orders set status = 'cancelled', closed_at = now()`)
	r.exec(1, `update sales set sold = sold - 1`)
	r.exec(1, `insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
		select sale_id, id, sequence, user_id, quantity, partition, 'cancelled' from orders`)

	r.accept(sale, "left")
	r.leaveWith("dead")
	r.accept(sale, "hung")
	r.leaveWith("hanging")
	r.must(r.rdb.Set(r.Context(), keys.Worker(only, "hanging"), "1", time.Hour).Err())

	r.accept(sale, "good-1", "numbered")
	events := r.events()
	r.exec(1, `update orders set number = $1`, events[len(events)-1].Number) // the closed order has it now
	r.add("noise", "\xff\x00")
	r.accept(sale, "good-2", "good-3")
	r.forge("forged", total+1)

	r.must(r.store.CreateSale(r.Context(), aSale(secondSale))) // and nobody puts it into Redis
}

func ordersDone(r *run) bool {
	return r.settled() && r.count(`select count(*) from dead_letters`) == 3 &&
		r.count(`select count(*) from sales where loaded_at is null`) == 0
}

func checkOrders(r *run) {
	r.Helper()
	r.balanced(saleID, "good-1", "good-2", "good-3", "hung", "left")
	r.balanced(secondSale)
	r.same("orders", r.ordersOf(), []string{
		"closed cancelled", "forged rejected", "good-1 confirmed", "good-2 confirmed", "good-3 confirmed", "hung confirmed",
		"left confirmed", "numbered rejected",
	})
	r.same("letters", r.lettersOf(), []string{"number-conflict 1", "over-limit 1", "undecodable 1"})
	r.same("releases",
		r.rows(`select user_id, count(*)::text from releases where applied_at is not null group by user_id`),
		[]string{"closed 1", "forged 1", "numbered 1"})
	if got, err := r.rdb.HGet(r.Context(), keys.Sale(only, saleID), "released").Int(); err != nil || got != 2 {
		r.Errorf("Redis gave back %d orders, %v, want 2: nobody ever had the forged one", got, err)
	}
}

// shutdown is how a worker leaves that is asked to stop: it hands over an order that somebody else has locked.
func shutdown() *scenario {
	return &scenario{
		name: "shutdown", program: "worker", from: "redis xpending list",
		steps: []string{"redis xclaim", "redis del worker", "redis reap"}, // handed over, silent, out of the group
		prepare: func(r *run) {
			sale := r.openSale()
			r.accept(sale, "good", "locked")
			locked := r.events()[1]
			r.must(r.rdb.Set(r.Context(), keys.OrderLock(only, locked.OrderID), "another worker", time.Hour).Err())
		},
		act: func(r *run) {
			r.eventually("the one order is persisted, the other is not", func() bool {
				return r.gone() || r.count(`select count(*) from orders`) == 1 && r.length() == 1
			})
			ctx, cancel := context.WithTimeout(r.Context(), patience)
			defer cancel()
			_ = r.victim.Stop(ctx) // an error says that it was killed
		},
		done: func(r *run) bool { return r.gone() },
		recover: func(r *run) {
			// it has expired
			r.must(r.rdb.Del(r.Context(), keys.OrderLock(only, r.events()[r.length()-1].OrderID)).Err())
			r.takeOver("worker")
			r.eventually("everything is settled", r.settled)
		},
		check: func(r *run) {
			r.balanced(saleID, "good", "locked")
			r.same("orders", r.ordersOf(), []string{"good confirmed", "locked confirmed"})
		},
	}
}

// gone reports whether the process has ended.
func (r *run) gone() bool {
	select {
	case <-r.victim.Exited():
		return true
	default:
		return false
	}
}

func (r *run) length() int64 {
	n, err := r.rdb.XLen(r.Context(), keys.Orders(only)).Result()
	r.must(err)
	return n
}

// stale is a worker that fetched events before a verification of Redis: it resubmits the events to Redis,
// before it persists them. Redis has lost nothing: what only the memory of a process has is lost with the process, and
// not of this test.
func stale() *scenario {
	return &scenario{
		name: "stale", program: "worker", from: "redis xreadgroup",
		steps: []string{
			"postgres persist", "postgres read generation", "postgres look for orders", "redis admit", "redis settle",
		},
		prepare: func(r *run) {
			sale := r.openSale()
			r.accept(sale, "known")
			r.insert(r.events())
			r.accept(sale, "held-1", "held-2")
		},
		interfereAt: point{"redis xreadgroup", 1, faultnet.Before}, // it knows the generation, and fetches
		interfere: func(r *run) {
			if _, err := r.store.NextGeneration(r.Context(), nil); err != nil {
				r.Errorf("next generation: %v", err)
			}
		},
		done: func(r *run) bool { return r.settled() },
		recover: func(r *run) {
			r.takeOver("worker")
			r.eventually("everything is settled", r.settled)
		},
		check: func(r *run) {
			r.balanced(saleID, "held-1", "held-2", "known")
			r.same("orders", r.ordersOf(), []string{"held-1 confirmed", "held-2 confirmed", "known confirmed"})
			r.same("letters", r.lettersOf(), nil)
		},
	}
}

// forge adds the event of an accept of which Redis knows nothing.
func (r *run) forge(user string, quantity int) {
	r.Helper()
	r.add("v", "1", "s", saleID, "k", "1", "o", uuid.Must(uuid.NewV7()).String(), "n", fmt.Sprint(76+quantity), "u",
		user,
		"q", fmt.Sprint(quantity), "t", fmt.Sprint(time.Now().UnixMilli()))
}
