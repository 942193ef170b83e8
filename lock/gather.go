package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// minTrips and maxTrips bound the round trips that one Client has under way, unless one hangs. What comes meanwhile goes
	// together in the next one: a crowd makes fewer writes and reads of sockets than calls, on both sides.
	minTrips, maxTrips = 2, 32
	// tripWork is about what one round trip costs client and server in work. There may be as many trips under way as fit into
	// the time of one: where the way is long, hardly anybody waits for a turn; where it is short, work is saved.
	tripWork = 20 * time.Microsecond
	// maxGathered bounds the calls that go together, so that the server answers others in between.
	maxGathered = 64
	// slowCall: who waited this long for a turn goes at once. A connection that hangs may cost those who come later no more.
	slowCall = 20 * time.Millisecond
)

// gatherer sends scripts of many goroutines together, each with its own answer. It has no goroutine of its own: whoever ends
// a round trip has the first of those who wait send the next one, for all of them. A lone caller just calls. Nobody waits for
// a turn for longer than slowCall, so that none need be taken back when its context ends.
type gatherer struct {
	redis.UniversalClient // sends all but EvalSha

	mu       sync.Mutex // protects the rest
	underWay int
	quickest time.Duration // of all round trips, as far as it still holds
	waiting  []*gathered   // by arrival
	late     *time.Timer   // runs out when the first of those who wait has done so for slowCall; made with the first
}

// gathered is one call that waits for its turn.
type gathered struct {
	ctx  context.Context
	cmd  *redis.Cmd
	came time.Time
	turn chan []*gathered // the calls that its caller is to send, this one first; nil: another caller has sent it
}

// EvalSha is redis.Scripter.
func (g *gatherer) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, "evalsha", sha, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	call := &gathered{ctx: ctx, cmd: cmd}
	if g.enter(call) {
		g.send([]*gathered{call})
	} else if batch := <-call.turn; batch != nil {
		g.send(batch)
	}
	return cmd
}

// enter reports whether the call may go at once; else its turn comes.
func (g *gatherer) enter(call *gathered) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay < g.trips() {
		g.underWay++
		return true
	}
	call.came, call.turn = time.Now(), make(chan []*gathered, 1)
	g.waiting = append(g.waiting, call)
	if len(g.waiting) == 1 {
		g.watch(slowCall)
	}
	return false
}

// trips needs mu. It says how many round trips may be under way.
func (g *gatherer) trips() int {
	return max(minTrips, min(int(g.quickest/tripWork), maxTrips))
}

// watch needs mu.
func (g *gatherer) watch(d time.Duration) {
	if g.late == nil {
		g.late = time.AfterFunc(d, g.hurry)
		return
	}
	g.late.Reset(d)
}

// hurry lets those go who have waited for too long.
func (g *gatherer) hurry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		return
	}
	if wait := slowCall - time.Since(g.waiting[0].came); wait > 0 {
		g.watch(wait)
		return
	}
	g.underWay++
	g.next()
	if len(g.waiting) > 0 {
		g.watch(slowCall)
	}
}

// next needs mu, and somebody who waits.
func (g *gatherer) next() {
	n := min(len(g.waiting), maxGathered)
	batch := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	batch[0].turn <- batch
}

// leave ends a round trip that began at an instant.
func (g *gatherer) leave(began time.Time) {
	took := min(time.Since(began), slowCall)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case took < g.quickest || g.quickest == 0:
		g.quickest = took
	case g.underWay == 1: // a crowd's trips take long because it is one; a lone one tells that the way has become longer
		g.quickest += (took - g.quickest) / 16
	}
	if len(g.waiting) == 0 || g.underWay > g.trips() {
		g.underWay--
		return
	}
	g.next()
}

// send sends a batch. The first call is the caller's own.
func (g *gatherer) send(batch []*gathered) {
	defer g.leave(time.Now())
	if len(batch) == 1 {
		_ = g.Process(batch[0].ctx, batch[0].cmd) // the command keeps its error
		return
	}
	ctx := longest(batch)
	pipe := g.Pipeline()
	for _, call := range batch {
		_ = pipe.Process(ctx, call.cmd)
	}
	_, _ = pipe.Exec(ctx) // each command keeps its own
	for _, call := range batch[1:] {
		call.turn <- nil
	}
}

// longest is a context that ends when the last of them has no more time: nobody's call ends with another's context.
func longest(batch []*gathered) context.Context {
	var last context.Context
	var until time.Time
	for _, call := range batch {
		deadline, has := call.ctx.Deadline()
		if !has {
			return context.WithoutCancel(call.ctx)
		}
		if last == nil || deadline.After(until) {
			last, until = call.ctx, deadline
		}
	}
	return &bounded{context.WithoutCancel(last), until}
}
