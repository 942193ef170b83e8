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
	tripWork = 20 * time.Microsecond
	// maxGathered bounds the calls that go together, so that the server answers others in between.
	maxGathered = 64
	// slowCall: who waited this long for a turn goes at once. A connection that hangs may cost those who come later no more.
	slowCall = 20 * time.Millisecond
)

// gatherer sends scripts of many goroutines together, each with its own answer. It has no goroutine of its own: whoever ends
// a round trip has one of those who wait send the next one, for all of them. A lone caller just calls. Nobody waits for a turn
// for longer than slowCall, so that none need be taken back when its context ends.
type gatherer struct {
	redis.UniversalClient      // sends all but EvalSha
	inTime                bool // it ends a call at the deadline of its context; so do we, whoever goes with it

	mu       sync.Mutex // protects the rest
	underWay int
	quickest time.Duration // of all round trips that were answered, as far as it still holds
	waiting  []*gathered   // by arrival
	late     *time.Timer   // runs out when the first of those who wait has done so for slowCall; made with the first
}

// gathered is one call that waits for its turn.
type gathered struct {
	ctx  context.Context
	cmd  *redis.Cmd // its sender's, until it tells that it was sent
	came time.Time
	turn chan turn // with room for one: what comes later is told to nobody
}

// turn is what one who waits is told: to send a batch of which his own call is the first; or that another has sent his, or
// why there will be no answer.
type turn struct {
	batch []*gathered
	err   error
}

var errSenderGone = errors.New("lock: the goroutine that sent the call has panicked")

// EvalSha is redis.Scripter.
func (g *gatherer) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, "evalsha", sha, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	words = append(words, args...)
	call := &gathered{ctx: ctx, cmd: redis.NewCmd(ctx, words...)}
	if len(keys) > 0 {
		call.cmd.SetFirstKeyPos(3)
	}
	if g.enter(call) {
		g.send([]*gathered{call})
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
func (g *gatherer) enter(call *gathered) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay < g.trips() {
		g.underWay++
		return true
	}
	call.came, call.turn = time.Now(), make(chan turn, 1)
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
	for len(g.waiting) > 0 {
		if wait := slowCall - time.Since(g.waiting[0].came); wait > 0 {
			g.watch(wait)
			return
		}
		g.underWay++
		g.next()
	}
}

// next needs mu, and somebody who waits. Whoever has the most time sends: he is there until the end.
func (g *gatherer) next() {
	n := min(len(g.waiting), maxGathered)
	batch := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	i := longest(batch)
	batch[0], batch[i] = batch[i], batch[0]
	batch[0].tell(turn{batch: batch})
}

func (c *gathered) tell(t turn) {
	select {
	case c.turn <- t:
	default: // he was told something else
	}
}

// leave ends a round trip that began at an instant. One that was not answered tells nothing about the way.
func (g *gatherer) leave(began time.Time, answered bool) {
	took := min(time.Since(began), slowCall)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !answered:
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
	own, others := batch[0], batch[1:]
	began, answered, outcome := time.Now(), false, turn{err: errSenderGone}
	defer func() { // a hook of the Redis client may panic: that ends its caller's call, and holds up nobody
		g.leave(began, answered)
		for _, call := range others {
			call.tell(outcome)
		}
	}()
	if len(others) == 0 {
		_ = g.Process(own.ctx, own.cmd) // the command keeps its error
	} else {
		g.sendTogether(own, others)
	}
	err := own.cmd.Err()
	answered, outcome = err == nil || told(err), turn{}
}

// sendTogether sends several calls for as long as the own one has time, whatever becomes of its context: nobody's call ends with
// another's.
func (g *gatherer) sendTogether(own *gathered, others []*gathered) {
	ctx := context.WithoutCancel(own.ctx)
	if deadline, has := own.ctx.Deadline(); has {
		ctx = &bounded{ctx, deadline}
	}
	if g.inTime {
		p := patience{others: others}
		p.look()
		defer p.end()
	}
	pipe := g.Pipeline()
	_ = pipe.Process(ctx, own.cmd)
	for _, call := range others {
		_ = pipe.Process(ctx, call.cmd)
	}
	_, _ = pipe.Exec(ctx) // each command keeps its own error
}

// longest is the place of the call that has the most time.
func longest(batch []*gathered) (place int) {
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
type patience struct {
	mu     sync.Mutex // protects the rest
	others []*gathered
	timer  *time.Timer
}

// look comes back when the next one's time is up.
func (p *patience) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, next := time.Now(), time.Time{}
	for _, call := range p.others {
		deadline, has := call.ctx.Deadline()
		switch {
		case !has:
		case !now.Before(deadline):
			call.tell(turn{err: context.DeadlineExceeded})
		case next.IsZero() || deadline.Before(next):
			next = deadline
		}
	}
	switch {
	case next.IsZero():
	case p.timer == nil:
		p.timer = time.AfterFunc(next.Sub(now), p.look)
	default:
		p.timer.Reset(next.Sub(now))
	}
}

func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.others = nil
	if p.timer != nil {
		p.timer.Stop()
	}
}
