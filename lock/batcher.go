package lock

import (
	"context"
	"errors"
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
	tripCost = 20 * time.Microsecond
	// maxGathered bounds the calls that go together, so that the server answers others in between.
	maxBatchCalls = 64
	// slowCall: who waited this long for a turn goes at once. A connection that hangs may cost those who come later no more.
	maxTurnWait = 20 * time.Millisecond
)

// gatherer sends scripts of many goroutines together, each with its own answer. It has no goroutine of its own: whoever ends
// a round trip has one of those who wait send the next one, for all of them. A lone caller just calls. Nobody waits for a turn
// for longer than slowCall, so that none need be taken back when its context ends.
type batcher struct {
	redis.UniversalClient      // sends all but EvalSha
	endsInTime                bool // it ends a call at the deadline of its context; so do we, whoever goes with it

	mu       sync.Mutex // protects the rest
	inFlight int
	fastest time.Duration // of all round trips that were answered, as far as it still holds
	pending  []*pendingCall   // by arrival
	overdue     *time.Timer   // runs out when the first of those who wait has done so for slowCall; made with the first
}

// gathered is one call that waits for its turn.
type pendingCall struct {
	ctx  context.Context
	cmd  *redis.Cmd // its sender's, until it tells that it was sent
	arrived time.Time
	turn chan turn // with room for one: what comes later is told to nobody
}

// turn is what one who waits is told: to send a batch of which his own call is the first; or that another has sent his, or
// why there will be no answer.
type turn struct {
	batch []*pendingCall
	err   error
}

var errSenderGone = errors.New("lock: the goroutine that sent the call has panicked")

// EvalSha is redis.Scripter.
func (g *batcher) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, "evalsha", sha, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	words = append(words, args...)
	call := &pendingCall{ctx: ctx, cmd: redis.NewCmd(ctx, words...)}
	if len(keys) > 0 {
		call.cmd.SetFirstKeyPos(3)
	}
	if g.admit(call) {
		g.send([]*pendingCall{call})
		return call.cmd
	}
	turn := <-call.turn
	if turn.err != nil {
		given := redis.NewCmd(ctx, words...) // the first one is the sender's still
		given.SetErr(turn.err)
		return given
	}
	if turn.batch != nil {
		g.send(turn.batch)
	}
	return call.cmd
}

// enter reports whether the call may go at once; else its turn comes.
func (g *batcher) admit(call *pendingCall) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inFlight < g.maxInFlight() {
		g.inFlight++
		return true
	}
	call.arrived, call.turn = time.Now(), make(chan turn, 1)
	g.pending = append(g.pending, call)
	if len(g.pending) == 1 {
		g.armOverdue(maxTurnWait)
	}
	return false
}

// trips needs mu. It says how many round trips may be under way.
func (g *batcher) maxInFlight() int {
	return max(minTrips, min(int(g.fastest/tripCost), maxTrips))
}

// watch needs mu.
func (g *batcher) armOverdue(d time.Duration) {
	if g.overdue == nil {
		g.overdue = time.AfterFunc(d, g.sendOverdue)
		return
	}
	g.overdue.Reset(d)
}

// hurry lets those go who have waited for too long.
func (g *batcher) sendOverdue() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.pending) > 0 {
		if wait := maxTurnWait - time.Since(g.pending[0].arrived); wait > 0 {
			g.armOverdue(wait)
			return
		}
		g.inFlight++
		g.dispatch()
	}
}

// next needs mu, and somebody who waits. Whoever has the most time sends: he is there until the end.
func (g *batcher) dispatch() {
	n := min(len(g.pending), maxBatchCalls)
	batch := slices.Clone(g.pending[:n])
	g.pending = slices.Delete(g.pending, 0, n)
	i := latestDeadline(batch)
	batch[0], batch[i] = batch[i], batch[0]
	batch[0].resolve(turn{batch: batch})
}

func (c *pendingCall) resolve(t turn) {
	select {
	case c.turn <- t:
	default: // he was told something else
	}
}

// leave ends a round trip that began at an instant. One that was not answered tells nothing about the way.
func (g *batcher) finish(began time.Time, answered bool) {
	took := min(time.Since(began), maxTurnWait)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !answered:
	case took < g.fastest || g.fastest == 0:
		g.fastest = took
	case g.inFlight == 1: // a crowd's trips take long because it is one; a lone one tells that the way has become longer
		g.fastest += (took - g.fastest) / 16
	}
	if len(g.pending) == 0 || g.inFlight > g.maxInFlight() {
		g.inFlight--
		return
	}
	g.dispatch()
}

// send sends a batch. The first call is the caller's own.
func (g *batcher) send(batch []*pendingCall) {
	own, others := batch[0], batch[1:]
	began, answered, outcome := time.Now(), false, turn{err: errSenderGone}
	defer func() { // a hook of the Redis client may panic: that ends its caller's call, and holds up nobody
		g.finish(began, answered)
		for _, call := range others {
			call.resolve(outcome)
		}
	}()
	if len(others) == 0 {
		_ = g.Process(own.ctx, own.cmd) // the command keeps its error
	} else {
		g.sendPipeline(own, others)
	}
	err := own.cmd.Err()
	answered, outcome = err == nil || serverAnswered(err), turn{}
}

// sendTogether sends several calls for as long as the own one has time, whatever becomes of its context: nobody's call ends with
// another's.
func (g *batcher) sendPipeline(own *pendingCall, others []*pendingCall) {
	ctx := context.WithoutCancel(own.ctx)
	if deadline, has := own.ctx.Deadline(); has {
		ctx = &deadlineContext{ctx, deadline}
	}
	if g.endsInTime {
		p := deadlineWatch{calls: others}
		p.check()
		defer p.stop()
	}
	pipe := g.Pipeline()
	_ = pipe.Process(ctx, own.cmd)
	for _, call := range others {
		_ = pipe.Process(ctx, call.cmd)
	}
	_, _ = pipe.Exec(ctx) // each command keeps its own error
}

// longest is the place of the call that has the most time.
func latestDeadline(batch []*pendingCall) (place int) {
	var last time.Time
	for i, call := range batch {
		deadline, has := call.ctx.Deadline()
		if !has {
			return i
		}
		if deadline.After(last) {
			place, last = i, deadline
		}
	}
	return place
}

// patience lets those of a batch go whose time is up before its answer has come.
type deadlineWatch struct {
	mu     sync.Mutex // protects the rest
	calls []*pendingCall
	timer  *time.Timer
}

// look comes back when the next one's time is up.
func (p *deadlineWatch) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, next := time.Now(), time.Time{}
	for _, call := range p.calls {
		deadline, has := call.ctx.Deadline()
		switch {
		case !has:
		case !now.Before(deadline):
			call.resolve(turn{err: context.DeadlineExceeded})
		case next.IsZero() || deadline.Before(next):
			next = deadline
		}
	}
	switch {
	case next.IsZero():
	case p.timer == nil:
		p.timer = time.AfterFunc(next.Sub(now), p.check)
	default:
		p.timer.Reset(next.Sub(now))
	}
}

func (p *deadlineWatch) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = nil
	if p.timer != nil {
		p.timer.Stop()
	}
}
