package admission

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

// Nearly all buyers of a flash sale are refused, and nearly all of those for the same reason: the sale has not begun,
// is sold out, or is over. As long as that is so on a partition, nothing changes for a buyer who has no order there, so
// that the answer needs no Redis: a gate that refuses a flood remembers why, and who has an order. Buyers who may have
// one are looked up in Redis as always.

const (
	// refusalAge is how old what is remembered may be: the longest that a unit which was given back is refused to a
	// newcomer. Nothing is answered from memory beyond it, so a Redis that is away or replaced ends it by itself.
	refusalAge = 100 * time.Millisecond
	// refusalLook is the time between two looks: one may be late, or lost.
	refusalLook = refusalAge * 2 / 5
	// flood is how many refusals of a gate within floodTime make a memory worth two looks at Redis.
	flood     = 64
	floodTime = time.Second
	// idleLooks is after how many looks a memory is given up that nobody asked for: a second.
	idleLooks = int(time.Second / refusalLook)
	// maxKnownBuyers bounds the buyers that all gates remember together, at some 20 bytes each: 80 MiB.
	maxKnownBuyers = 4 << 20
	reserveStep    = 1 << 10
	// scanRest is how much longer than a scan of the buyers the pause after it is at least, so that a sale of which units
	// come back all the time costs Redis a twentieth at most; and minScanRest for those that are quick.
	scanRest    = 20
	minScanRest = 250 * time.Millisecond
)

// refusal is what a gate knew at an instant. It never changes.
type refusal struct {
	limits          lua.SaleLimits
	nowMS           int64     // by Redis, at some time between the next two
	asked, answered time.Time // by the monotonic clock
	accepts         int64     // of the gate, when it was asked
	buyers          *knownBuyers
}

// knownBuyers are all buyers who have a slot, and perhaps some who had. It never changes.
type knownBuyers struct {
	hashes     map[uint64]struct{} // two buyers may share one: then Redis is asked about both
	reserved   int64               // of maxKnownBuyers
	accepted   int64               // the sale's counter while it was read: a later accept is missing
	generation int64               // of the verification: a later one may have brought others
}

var buyerSeed = maphash.MakeSeed()

func hashOf(userID string) uint64 { return maphash.String(buyerSeed, userID) }

// age goes by two clocks: the monotonic one stands still while the machine sleeps.
func (r *refusal) age(now time.Time) time.Duration {
	return max(now.Sub(r.asked), now.Round(0).Sub(r.asked.Round(0)))
}

// result is the answer to a buyer without a slot, by the same rules and in the same order as admit.lua; empty where
// only Redis can tell.
func (r *refusal) result(quantity int, now time.Time) Result {
	earliest := r.nowMS + now.Sub(r.answered).Milliseconds()
	latest := r.nowMS + 1 + now.Sub(r.asked).Milliseconds() + 1
	l := &r.limits
	switch {
	case l.State == string(pipeline.SaleClosed), earliest >= l.ClosesMS:
		return Closed
	case latest >= l.ClosesMS:
		return ""
	case l.State == string(pipeline.SalePaused):
		return Paused
	case l.State != string(pipeline.SaleActive):
		return ""
	case latest < l.OpensMS:
		return NotOpen
	case earliest < l.OpensMS:
		return ""
	case quantity > l.MaxQuantity:
		return OverLimit
	case l.Stock == 0, l.Waiting > 0:
		return SoldOut
	default:
		return ""
	}
}

// refuse answers from memory, if it can.
func (g *gate) refuse(req *pipeline.OrderRequest) (Decision, bool) {
	if !g.asked.Load() { // a write by everybody would pass the line from core to core
		g.asked.Store(true)
	}
	r := g.refusal.Load()
	if r == nil || r.accepts != g.accepts.Load() { // a buyer who was accepted here is told so here
		return Decision{}, false
	}
	now := time.Now()
	if r.age(now) >= refusalAge {
		return Decision{}, false
	}
	result := r.result(req.Quantity, now)
	if result == "" {
		return Decision{}, false
	}
	if _, perhaps := r.buyers.hashes[hashOf(req.UserID)]; perhaps {
		return Decision{}, false
	}
	return Decision{
		Result: result, Receipt: Receipt{SaleID: g.at.SaleID}, Remaining: r.limits.Stock, MaxQuantity: r.limits.MaxQuantity,
		OpensAt: time.UnixMilli(r.limits.OpensMS).UTC(), ClosesAt: time.UnixMilli(r.limits.ClosesMS).UTC(),
	}, true
}

// note learns from a reply, before anybody gets an answer: an accept ends what is remembered, and a flood of refusals
// has the gate watched.
func (g *gate) note(reply lua.AdmitReply) {
	accepted, refused := 0, 0
	for _, o := range reply.Outcomes {
		switch o.Code { //nolint:exhaustive // the others say nothing of all buyers
		case lua.AdmitAccepted:
			accepted++
		case lua.AdmitSoldOut, lua.AdmitNotOpen, lua.AdmitClosed, lua.AdmitPaused:
			refused++
		}
	}
	if accepted > 0 {
		g.accepts.Add(int64(accepted))
	}
	if refused > 0 && g.isFlood(refused) {
		g.controller.refusals.watch(g)
	}
}

// isFlood counts refusals, and reports whether they came to a flood.
func (g *gate) isFlood(refused int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if now.Sub(g.refusedSince) > floodTime {
		g.refusedSince, g.refused = now, 0
	}
	if g.refused += refused; g.refused < flood {
		return false
	}
	g.refusedSince, g.refused = now, 0
	return true
}

// refusals keeps the memories of gates fresh. It has a goroutine only while there are some.
type refusals struct {
	controller *Controller
	known      atomic.Int64 // buyers that all gates remember together

	mu      sync.Mutex // protects the rest
	gates   map[*gate]*watched
	running bool
}

// watched is what the watch knows of a gate. Only its goroutine uses it.
type watched struct {
	gate   *gate
	idle   int // looks since somebody asked
	buyers *knownBuyers
	found  atomic.Pointer[knownBuyers] // by a scan that has ended
	scans  atomic.Bool                 // a scan is under way: next is its own
	next   time.Time                   // no scan before
}

func newRefusals(c *Controller) *refusals {
	return &refusals{controller: c, gates: map[*gate]*watched{}}
}

// watch begins to keep a gate's memory fresh.
func (w *refusals) watch(g *gate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gates[g] == nil {
		w.gates[g] = &watched{gate: g}
	}
	if !w.running {
		w.running = w.controller.start(w.run)
	}
}

// run looks at what is watched until nothing is.
func (w *refusals) run() {
	for {
		byPartition := w.current()
		if byPartition == nil {
			return
		}
		began := time.Now()
		var looks sync.WaitGroup
		for p, states := range byPartition {
			looks.Go(func() {
				defer w.controller.recovered("look at sales that refuse")
				for some := range slices.Chunk(states, lua.MaxRefusals) {
					w.look(p, some)
				}
			})
		}
		looks.Wait()
		time.Sleep(refusalLook - min(refusalLook, time.Since(began)))
	}
}

// current are the gates to look at, without those that nobody asked for. Nil ends the watch.
func (w *refusals) current() map[pipeline.Partition][]*watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	closing := w.controller.closing.Load()
	byPartition := map[pipeline.Partition][]*watched{}
	for g, state := range w.gates {
		state.idle++
		if g.asked.Swap(false) {
			state.idle = 0
		}
		if !state.scans.Load() && (closing || state.idle > idleLooks && time.Now().After(state.next)) {
			w.forget(state)
			delete(w.gates, g)
			continue
		}
		byPartition[g.at.Partition] = append(byPartition[g.at.Partition], state)
	}
	if len(w.gates) == 0 {
		w.running = false
		return nil
	}
	return byPartition
}

// forget drops what is remembered for a gate.
func (w *refusals) forget(state *watched) {
	state.gate.refusal.Store(nil)
	w.takeFound(state)
	w.remember(state, nil)
}

// takeFound remembers what a scan has found.
func (w *refusals) takeFound(state *watched) {
	if found := state.found.Swap(nil); found != nil {
		w.remember(state, found)
	}
}

// remember replaces the buyers of a gate.
func (w *refusals) remember(state *watched, buyers *knownBuyers) {
	if state.buyers != nil {
		w.known.Add(-state.buyers.reserved)
	}
	state.buyers = buyers
}

// look reads the limits of some gates of a partition, and renews what they remember.
func (w *refusals) look(p pipeline.Partition, states []*watched) {
	c := w.controller
	keys := lua.RefusalKeys{Trusted: c.keys.Trusted(p), Generation: c.keys.Generation(p)}
	accepts := make([]int64, len(states))
	for i, state := range states {
		keys.Sales = append(keys.Sales, state.gate.keys.Sale)
		accepts[i] = state.gate.accepts.Load()
	}
	ctx, cancel := context.WithTimeout(context.Background(), refusalAge)
	defer cancel()
	asked := time.Now()
	generation, err := c.opts.Fence.Current(p)
	var reply lua.Refusals
	if err == nil {
		keys.Fence = int64(generation)
		reply, err = lua.ReadRefusals(ctx, c.connections.rdb, keys)
	}
	if err != nil {
		return // what is remembered ends by its age
	}
	answered := time.Now()
	for i, state := range states {
		if !reply.Known || reply.Sales[i].State == "" {
			w.forget(state)
			continue
		}
		w.renew(state, &refusal{
			limits: reply.Sales[i], nowMS: reply.NowMS, asked: asked, answered: answered, accepts: accepts[i],
		}, reply.Generation)
	}
}

// renew makes a gate remember what was read, if it knows all buyers of then; else it has them read.
func (w *refusals) renew(state *watched, r *refusal, generation int64) {
	g := state.gate
	w.takeFound(state)
	if r.result(1, time.Now()) == "" { // somebody may be accepted
		g.refusal.Store(nil)
		return
	}
	b := state.buyers
	if b != nil && b.accepted == r.limits.AcceptedCounter && b.generation == generation {
		r.buyers = b
		g.refusal.Store(r)
		return
	}
	g.refusal.Store(nil)
	if state.scans.Load() || time.Now().Before(state.next) {
		return
	}
	state.scans.Store(true)
	w.remember(state, nil) // they are outdated, and would count twice
	began := &knownBuyers{accepted: r.limits.AcceptedCounter, generation: generation}
	if !w.controller.start(func() { w.scan(state, began) }) {
		state.scans.Store(false)
	}
}

// eachBuyer reads the buyers of a sale, of one kind or the other.
type eachBuyer func(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, at pipeline.SalePartition, do func(userID string) bool,
) error

// scan reads who has a slot, or had one under an idempotency key. A slot that is filled meanwhile moves the accept
// counter, which the next look compares.
func (w *refusals) scan(state *watched, into *knownBuyers) {
	c, at := w.controller, state.gate.at
	began := time.Now()
	defer func() {
		state.next = time.Now().Add(max(minScanRest, scanRest*time.Since(began)))
		state.scans.Store(false)
	}()
	defer c.recovered("read the buyers of a sale")
	into.hashes = map[uint64]struct{}{}
	known := func(userID string) bool {
		into.hashes[hashOf(userID)] = struct{}{}
		return w.reserve(int64(len(into.hashes)), &into.reserved)
	}
	read := func(each eachBuyer) error {
		ctx, cancel := context.WithTimeout(context.Background(), retry.CommandTimeout)
		defer cancel()
		return each(ctx, c.connections.rdb, c.keys, at, known)
	}
	err := read(redisstore.EachBuyer)
	if err == nil { // after the buyers: an order that ends meanwhile is found here
		err = read(redisstore.EachEnded)
	}
	if err != nil || int64(len(into.hashes)) > into.reserved {
		w.known.Add(-into.reserved)
		return
	}
	state.found.Store(into)
}

// reserve makes room for n buyers in steps, and reports whether there is.
func (w *refusals) reserve(n int64, reserved *int64) bool {
	if n <= *reserved {
		return true
	}
	if w.known.Add(reserveStep) > maxKnownBuyers {
		w.known.Add(-reserveStep)
		return false
	}
	*reserved += reserveStep
	return true
}
