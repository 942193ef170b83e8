package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/buyers"
)

// fault is one fault as it happens. Both functions may fail when what they strike is not there; undo is called
// whenever do was. Both return hits, what the fault came to: processes killed, replies lost, entries poisoned. If the
// sum is 0 it never really happened.
type fault struct {
	do   func(ctx context.Context) (hits int, err error) // for a fault that lasts, it returns once that has begun
	undo func(ctx context.Context) (hits int, err error) // ends it
}

func (r *run) newFault(s step) fault {
	link := r.system.links[s.Target]
	switch s.Kind {
	case killAPI, killAPIs:
		return r.kill(s)
	case killWorker, killWorkers:
		return r.killBusy(s)
	case vanish:
		return r.vanish(s)
	case pauseWorker, pauseAPI:
		return r.pauseProcess(s)
	case killRedis:
		return killServer(r.system.currentRedis())
	case killPostgres:
		return killServer(r.system.currentPostgres())
	case stillRedis:
		return pauseServer(r.system.currentRedis())
	case stillPostgres:
		return pauseServer(r.system.currentPostgres())
	case cutRedis:
		return r.freezeAll("redis")
	case cutPostgres:
		return r.freezeAll("postgres")
	case cut:
		return onLink(link.Cut, link.Heal)
	case slow:
		return onLink(func() { link.Slow(between(s.Random, fastest, slowest)) }, func() { link.Slow(0) })
	case halfOpen:
		return onLink(link.Freeze, link.Thaw)
	case lostReply:
		return loseReplies(link, s)
	case forgetScript:
		return again(scriptEvery, r.system.forgetScripts)
	case killClients:
		return again(stormEvery, r.system.killClients)
	case endBackends:
		return again(stormEvery, r.system.endBackends)
	case poison:
		return fault{do: func(ctx context.Context) (int, error) { return r.addPoison(ctx, s) }, undo: nothing}
	case redisClock:
		return wrongClock(s, func() clocked { return r.system.currentRedis() })
	case postgresClock:
		return wrongClock(s, func() clocked { return r.system.currentPostgres() })
	case flushAll:
		return r.whileInFlight(s, fault{do: r.system.flushAll, undo: nothing})
	case oldFile:
		return r.whileInFlight(s, r.system.restoreOldFile(s))
	case failover:
		return r.whileInFlight(s, r.system.failOver(s))
	case restored:
		return r.restorePostgres(s)
	case splitBrain:
		return r.whileInFlight(s, r.system.split(s))
	case promoteStandby:
		return r.system.promote()
	case killStandby:
		return killServer(r.system.currentStandby())
	case stillStandby:
		return pauseServer(r.system.currentStandby())
	case killNode:
		return killServer(r.system.node(s))
	case stillNode:
		return pauseServer(r.system.node(s))
	case killMaster:
		return r.system.fleet.killMaster(s)
	case stillMaster:
		return r.system.fleet.stillMaster(s)
	case switchMaster:
		return r.system.fleet.switchMaster(s)
	case moveSlot:
		return r.system.fleet.moveSlot(s)
	case lateTakeOver:
		return r.whileInFlight(s, r.system.fleet.lateTakeOver(s))
	case flushMaster:
		return r.whileInFlight(s, r.system.fleet.flushMaster(s))
	}
	return fault{
		do:   func(context.Context) (int, error) { return 0, fmt.Errorf("%s: not known", s.Kind) },
		undo: nothing,
	}
}

func nothing(context.Context) (int, error) { return 0, nil }

const (
	fetchTime = 300 * time.Millisecond // for a worker to fetch a batch
	// keepTime is how long after a loss of Redis' data the worker still has it: until a verification has begun, has
	// read Postgres, and has opened the partitions again.
	keepTime = lossTail
)

// whileInFlight is a loss of Redis' data during which one worker has events in flight: it fetched them before, and
// what it asked Postgres to write arrives when Redis is rebuilt and sells again.
func (r *run) whileInFlight(s step, loss fault) fault {
	link := r.system.links[s.Worker+">postgres"]
	return fault{
		do: func(ctx context.Context) (int, error) {
			link.Freeze()
			buyers.Sleep(ctx, fetchTime)
			return loss.do(ctx)
		},
		undo: func(ctx context.Context) (int, error) {
			hits, err := loss.undo(ctx)
			buyers.Sleep(ctx, keepTime)
			link.Thaw()
			return hits, err
		},
	}
}

// hit counts one, unless there is an error.
func hit(err error) (int, error) {
	if err != nil {
		return 0, err
	}
	return 1, nil
}

func onLink(do, undo func()) fault {
	return fault{
		do:   func(context.Context) (int, error) { do(); return 1, nil },
		undo: func(context.Context) (int, error) { undo(); return 0, nil },
	}
}

// A slow connection delays each reply by one such time. Beyond, it would be a frozen one: calls give up.
const fastest, slowest = 5 * time.Millisecond, 60 * time.Millisecond

// between makes a time between two of a random number.
func between(random uint64, least, most time.Duration) time.Duration {
	return least + time.Duration(random%uint64(most-least))
}

// Every process asks everything it is connected to within a few seconds, if only for its health.
const anyReplyLimit, anyReplyEvery = 20 * time.Second, 250 * time.Millisecond

// replyTexts are the texts by which the replies to lose are chosen, by what the connection leads to. "" loses the
// next ones, whatever they answer.
var replyTexts = map[string][]string{
	"api>redis":       {"evalsha", "evalsha", "{seq}", ""},
	"worker>redis":    {"xreadgroup", "xreadgroup", "evalsha", ""},
	"worker>postgres": {"drop-", "big", ""}, // the arguments of the insert name the sale
	"api>postgres":    {""},
	"buyers>api":      {""},
}

// loseReplies has a server do what it is asked and loses the answer.
func loseReplies(link *link, s step) fault {
	before := link.Lost()
	return fault{
		do: func(context.Context) (int, error) {
			texts := replyTexts[strings.NewReplacer("-1", "", "-2", "", "-3", "").Replace(s.Target)]
			n := 1 + int(s.Random>>8%8)
			if text := texts[s.Random%uint64(len(texts))]; text == "" {
				link.DropReplies(n)
			} else {
				link.DropReplyTo(text, n)
			}
			return 0, nil
		},
		// At least one is lost: what was waited for may not have been asked.
		undo: func(ctx context.Context) (int, error) {
			ctx, cancel := context.WithTimeout(ctx, anyReplyLimit)
			defer cancel()
			for link.Lost() == before && ctx.Err() == nil {
				link.DropReplies(1)
				buyers.Sleep(ctx, anyReplyEvery)
				link.KeepReplies()
			}
			link.KeepReplies()
			return link.Lost() - before, nil
		},
	}
}

const (
	scriptEvery = 50 * time.Millisecond
	stormEvery  = 100 * time.Millisecond
	// missLimit is how much longer a fault may go on that struck nothing so far: on a busy machine its blows come
	// late too.
	missLimit = 20 * time.Second
)

// again strikes until it is undone, and has struck.
func again(every time.Duration, strike func(ctx context.Context) (hits int, err error)) fault {
	stop := func() {}
	var striking sync.WaitGroup
	var hits atomic.Int64
	return fault{
		do: func(ctx context.Context) (int, error) {
			ctx, stop = context.WithCancel(context.WithoutCancel(ctx))
			striking.Go(func() {
				for ctx.Err() == nil {
					if n, err := strike(ctx); err == nil { // the server may be down, by another fault
						hits.Add(int64(n))
					}
					buyers.Sleep(ctx, every)
				}
			})
			return 0, nil
		},
		undo: func(ctx context.Context) (int, error) {
			ctx, cancel := context.WithTimeout(ctx, missLimit)
			defer cancel()
			for hits.Load() == 0 && ctx.Err() == nil {
				buyers.Sleep(ctx, every)
			}
			stop()
			striking.Wait()
			return int(hits.Load()), nil
		},
	}
}

func (s *system) forgetScripts(ctx context.Context) (int, error) {
	if s.fleet != nil {
		return s.fleet.onEach(func(node *redis.Client) (int64, error) { return 1, node.ScriptFlush(ctx).Err() })
	}
	return 1, s.rdb.ScriptFlush(ctx).Err()
}

// killClients ends every connection to Redis but the one that it uses.
func (s *system) killClients(ctx context.Context) (int, error) {
	if s.fleet != nil {
		return s.fleet.onEach(func(node *redis.Client) (int64, error) {
			return node.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Result()
		})
	}
	n, err := s.rdb.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Result()
	return int(n), err
}

// endBackends is the same for Postgres.
func (s *system) endBackends(ctx context.Context) (int, error) {
	var n int
	err := s.pool.QueryRow(ctx, `
		select count(pg_terminate_backend(pid)) from pg_stat_activity
		where pid <> pg_backend_pid() and backend_type = 'client backend'`).Scan(&n)
	return n, err
}
