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
	// minTrips and maxTrips bound the round trips that one Client has in flight, unless one hangs. Calls that arrive
	// meanwhile share the next one: a crowd then makes fewer writes to and reads from sockets than calls, on both
	// sides.
	minTrips, maxTrips = 2, 32
	// tripCost is roughly the work of one round trip, client and server together. As many trips may be in flight as fit
	// into the duration of one: with a distant server hardly any call waits for a turn; with a near one, work is saved.
	tripCost = 20 * time.Microsecond
	// maxBatchCalls bounds the calls of one round trip, so that the server serves others in between.
	maxBatchCalls = 64
	// maxTurnWait is the longest time that a call waits for a turn; then it is sent at once. A connection that hangs
	// costs later calls no more than this.
	maxTurnWait = 20 * time.Millisecond
)

// batcher sends the scripts of many goroutines together, each with its own reply. It has no goroutine of its own: when
// a round trip ends, its goroutine makes one of the waiting goroutines send the next batch, for all of them. A lone
// caller sends its own call. No call waits for a turn for longer than maxTurnWait, so none needs to be withdrawn when
// its context ends.
type batcher struct {
	redis.UniversalClient      // sends everything but EvalSha
	endsInTime            bool // the Redis client ends a call at its context's deadline, and so must every batch

	mu       sync.Mutex // protects the rest
	inFlight int
	fastest  time.Duration  // round trip that was answered, as far as that still holds
	pending  []*pendingCall // by arrival
	overdue  *time.Timer    // fires when the first pending call has waited for maxTurnWait; made with the first
}

// pendingCall is one call that waits for its turn.
type pendingCall struct {
	ctx     context.Context
	cmd     *redis.Cmd // belongs to its sender until the turn is resolved
	arrived time.Time
	turn    chan turn // with room for one; later values are dropped
}

// turn resolves a pending call: the goroutine is to send a batch that begins with its own call, or another goroutine
// has sent the call, or err says why there will be no reply.
type turn struct {
	batch []*pendingCall
	err   error
}

var errSenderGone = errors.New("lock: the goroutine that sent the call has panicked")

// EvalSha is redis.Scripter.
func (b *batcher) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
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
	if b.start(call) {
		b.send([]*pendingCall{call})
		return call.cmd
	}
	turn := <-call.turn
	if turn.err != nil {
		failed := redis.NewCmd(ctx, words...) // the first one still belongs to the sender
		failed.SetErr(turn.err)
		return failed
	}
	if turn.batch != nil {
		b.send(turn.batch)
	}
	return call.cmd
}

// start reports whether the call may be sent at once; otherwise it is pending.
func (b *batcher) start(call *pendingCall) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight < b.maxInFlight() {
		b.inFlight++
		return true
	}
	call.arrived, call.turn = time.Now(), make(chan turn, 1)
	b.pending = append(b.pending, call)
	if len(b.pending) == 1 {
		b.armOverdue(maxTurnWait)
	}
	return false
}

// maxInFlight needs mu. It returns how many round trips may be in flight.
func (b *batcher) maxInFlight() int {
	return max(minTrips, min(int(b.fastest/tripCost), maxTrips))
}

// armOverdue needs mu.
func (b *batcher) armOverdue(d time.Duration) {
	if b.overdue == nil {
		b.overdue = time.AfterFunc(d, b.sendOverdue)
		return
	}
	b.overdue.Reset(d)
}

// sendOverdue sends the calls that have waited for too long.
func (b *batcher) sendOverdue() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.pending) > 0 {
		if wait := maxTurnWait - time.Since(b.pending[0].arrived); wait > 0 {
			b.armOverdue(wait)
			return
		}
		b.inFlight++
		b.dispatch()
	}
}

// dispatch needs mu, and a pending call. The call with the latest deadline sends, because its goroutine stays until the
// end.
func (b *batcher) dispatch() {
	n := min(len(b.pending), maxBatchCalls)
	batch := slices.Clone(b.pending[:n])
	b.pending = slices.Delete(b.pending, 0, n)
	i := latestDeadline(batch)
	batch[0], batch[i] = batch[i], batch[0]
	batch[0].resolve(turn{batch: batch})
}

func (c *pendingCall) resolve(t turn) {
	select {
	case c.turn <- t:
	default: // already resolved
	}
}

// finish ends a round trip. One that was not answered says nothing about the distance of the server.
func (b *batcher) finish(began time.Time, answered bool) {
	took := min(time.Since(began), maxTurnWait)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !answered:
	case took < b.fastest || b.fastest == 0:
		b.fastest = took
	case b.inFlight == 1: // a crowd slows its own trips; a lone trip shows the distance
		b.fastest += (took - b.fastest) / 16
	}
	if len(b.pending) == 0 || b.inFlight > b.maxInFlight() {
		b.inFlight--
		return
	}
	b.dispatch()
}

// send sends a batch. The first call is the caller's own.
func (b *batcher) send(batch []*pendingCall) {
	own, others := batch[0], batch[1:]
	began, answered, outcome := time.Now(), false, turn{err: errSenderGone}
	defer func() { // a hook of the Redis client may panic: that ends its caller's call and holds up no other
		b.finish(began, answered)
		for _, call := range others {
			call.resolve(outcome)
		}
	}()
	if len(others) == 0 {
		_ = b.Process(own.ctx, own.cmd) // the command keeps its error
	} else {
		b.sendPipeline(own, others)
	}
	err := own.cmd.Err()
	answered, outcome = err == nil || serverAnswered(err), turn{}
}

// sendPipeline sends several calls in one round trip that lasts as long as the own call has time, even when that call's
// context ends sooner: no call ends because another one does.
func (b *batcher) sendPipeline(own *pendingCall, others []*pendingCall) {
	ctx := context.WithoutCancel(own.ctx)
	if deadline, has := own.ctx.Deadline(); has {
		ctx = &deadlineContext{ctx, deadline}
	}
	if b.endsInTime {
		p := deadlineWatch{calls: others}
		p.check()
		defer p.stop()
	}
	pipe := b.Pipeline()
	_ = pipe.Process(ctx, own.cmd)
	for _, call := range others {
		_ = pipe.Process(ctx, call.cmd)
	}
	sent, err := pipe.Exec(ctx)
	if err == nil || slices.ContainsFunc(sent, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		return // each command keeps its own error
	}
	for _, cmd := range sent { // a connection that Redis refused: no command was sent, and the client tells none of them
		cmd.SetErr(err)
	}
}

// latestDeadline returns the index of the call with the latest deadline.
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

// deadlineWatch resolves the calls of a batch whose deadline passes before the reply has come.
type deadlineWatch struct {
	mu    sync.Mutex // protects the rest
	calls []*pendingCall
	timer *time.Timer
}

// check runs again at the next deadline.
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
