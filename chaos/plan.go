package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The processes that a plan is made for.
const (
	apiCount    = 2
	workerCount = 3
)

const (
	planLead = 2 * time.Second // the sale runs before the first fault …
	planTail = 2 * time.Second // … and after the last one has ended
	meanRest = 3 * time.Second // between two pairs, on average: there must be receipts for them to threaten

	// shortRun is how short a run must be for faults to come without rest: all kinds need their turn.
	shortRun = 2 * time.Minute

	// longest is the length of a fault that outlasts every timeout in the code: the longest are a minute.
	longest = 125 * time.Second
	// longShare bounds that length in a short run, as a share of it.
	longShare = 4
	// twoLong is how long a run must be for both stores to be away for that long; in a shorter one, only one of them is.
	twoLong = 8 * time.Minute
	// secondEvery is the time between two faults while a long one is on.
	secondEvery = 5 * time.Second

	// lossTail is how long a loss of Redis' data is on once Redis answers again: it is found and repaired.
	lossTail = 3 * time.Second
)

// onlyCopy is what a loss of data in one store makes of the other one's until it is repaired: both at once lose what
// neither the APIs nor the workers keep any more, because both stores had it.
const onlyCopy = "only copy"

// step is one fault of a plan.
type step struct {
	Number int           // from 1, by time
	At     time.Duration // after the start
	For    time.Duration // until it is undone; 0 for what happens at once
	Kind   kind
	Target string // api-1, workers, redis, postgres, or a connection: buyers>api-1, api-1>redis, worker-2>postgres
	During int    // number of the fault that is on when this one begins; 0: this is the first of a pair
	Worker string // of a loss: the worker that has events in flight meanwhile; "" otherwise
	API    string // of a split brain: the API that keeps the old primary; "" otherwise
	Random uint64 // for what is left to decide when it happens: how slow, which reply
}

// on is how long a step has an effect that another one can meet.
func (s step) on() time.Duration {
	if t := traits[s.Kind]; t.loses || t.mislays {
		return s.For + lossTail
	}
	return s.For
}

// occupies are the processes and servers that a fault strikes or needs left alone: one fault at a time for each.
func (s step) occupies() []string {
	names := struck(s.Target)
	if t := traits[s.Kind]; t.loses || t.mislays {
		names = append(names, onlyCopy)
	}
	for _, name := range []string{s.Worker, s.API} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// struck are the processes and servers behind a target. A connection counts as its process.
func struck(target string) []string {
	switch target {
	case "apis":
		return processNames("api", apiCount)
	case "workers":
		return processNames("worker", workerCount)
	case "servers":
		return []string{"redis", "postgres"}
	}
	if strings.HasPrefix(target, "shard-") {
		return []string{"redis"}
	}
	from, to, link := strings.Cut(target, ">")
	if link && from == "buyers" {
		return []string{to}
	}
	return []string{from}
}

func (s step) String() string {
	text := fmt.Sprintf("#%d at %.1fs for %.1fs: %s, %s", s.Number, s.At.Seconds(), s.For.Seconds(), s.Kind, s.Target)
	if s.During > 0 {
		text += fmt.Sprintf(", during #%d", s.During)
	}
	return text
}

// newPlan makes the faults of a run. The same arguments give the same plan. It is a series of pairs: a first fault, and
// one or two that begin while it is on. The rules:
//
//   - kinds that had no turn yet come first, then the pairs of classes that were planned least often
//   - two faults at once strike different processes and servers, else one would hide the other
//   - in a long run each store is away once for longer than every timeout, and meets a fault every few seconds then
//   - all is over planTail before the end
func newPlan(o Options) []step {
	if o.Calm {
		return nil
	}
	random := newRandom(o.Seed)
	for {
		p := newPlanner(o, random)
		for p.addPair() {
		}
		if p.complete() { // in a short run some orders of the kinds don't fit
			return p.steps
		}
	}
}

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

type planner struct {
	opts   Options
	random *rand.Rand
	clock  time.Duration // the next pair begins then
	end    time.Duration
	long   []long
	steps  []step
	used   map[kind]int
	pairs  map[[2]class]int
	firsts map[class]int
}

// long is a store that is away for long, from some time on.
type long struct {
	class class
	from  time.Duration
}

func newPlanner(o Options, random *rand.Rand) *planner {
	p := &planner{
		opts: o, random: random, clock: planLead, end: o.Duration - planTail, used: map[kind]int{},
		pairs: map[[2]class]int{}, firsts: map[class]int{},
	}
	if o.Pair != "" {
		return p
	}
	stores := []class{postgresAway, redisAway}
	p.random.Shuffle(len(stores), func(i, j int) { stores[i], stores[j] = stores[j], stores[i] })
	if o.Topology.isReplicated() { // a master is replaced in seconds, however long it is away
		stores = []class{postgresAway}
	}
	if o.Duration < twoLong {
		stores = stores[:1]
	}
	for i, store := range stores { // each in its part of the run
		part := o.Duration / time.Duration(len(stores))
		latest := part - p.longFor() - part/5
		p.long = append(p.long, long{store, part*time.Duration(i) + time.Duration(p.random.Int64N(int64(latest)))})
	}
	return p
}

func (p *planner) longFor() time.Duration { return min(longest, p.opts.Duration/longShare) }

// complete reports whether each kind had its turn.
func (p *planner) complete() bool {
	return !slices.ContainsFunc(kinds, func(k kind) bool { return p.opts.needs(k) && p.used[k] == 0 })
}

// addPair plans one more fault and what meets it. It is false when the time is over.
func (p *planner) addPair() bool {
	first, seconds := p.next()
	begun := len(p.steps)
	until := first.At + first.on()
	if until > p.end {
		return false
	}
	p.add(first)
	for _, at := range seconds {
		if s, ok := p.second(p.steps[begun:], at); ok {
			p.add(s)
			until = max(until, s.At+s.on())
		}
	}
	if until > p.end { // the last of them would be cut off
		for _, s := range p.steps[begun:] {
			p.used[s.Kind]--
		}
		p.steps = p.steps[:begun]
		return false
	}
	rest := p.rest()
	p.clock = until + rest/2 + time.Duration(p.random.Int64N(int64(rest)))
	return true
}

func (p *planner) add(s step) {
	s.Number, s.Random = len(p.steps)+1, p.random.Uint64()
	p.steps = append(p.steps, s)
	p.used[s.Kind]++
	if s.During == 0 {
		p.firsts[traits[s.Kind].class]++
		return
	}
	p.pairs[[2]class{traits[p.steps[s.During-1].Kind].class, traits[s.Kind].class}]++
}

// next chooses a first fault, and when others begin after it.
func (p *planner) next() (first step, seconds []time.Duration) {
	isLong := len(p.long) > 0 && p.long[0].from <= p.clock
	k := p.least(func(k kind) (bool, int) {
		t := traits[k]
		if isLong {
			return t.away && t.class == p.long[0].class, 0
		}
		wanted, _ := p.opts.pair()
		return !t.brief && (p.opts.Pair == "" || k == wanted), p.firsts[t.class]
	})
	first, _ = p.place(k, nil)
	first.At = p.clock
	if !isLong {
		for range p.secondCount() {
			seconds = append(seconds, time.Duration(p.random.Int64N(int64(first.on())*4/5+1)))
		}
		slices.Sort(seconds)
		return first, seconds
	}
	p.long = p.long[1:]
	first.For = p.longFor()
	for at := secondEvery / 2; at < first.For-secondEvery; at += secondEvery {
		seconds = append(seconds, at+time.Duration(p.random.Int64N(int64(secondEvery/2))))
	}
	return first, seconds
}

// rest is the mean time between two pairs. In a short run all kinds need their turn.
func (p *planner) rest() time.Duration {
	if p.isShort() {
		return meanRest / 4
	}
	return meanRest
}

func (p *planner) isShort() bool { return p.opts.Duration < shortRun && p.opts.Pair == "" }

// secondCount is how many faults meet a first one.
func (p *planner) secondCount() int {
	if _, second := p.opts.pair(); p.opts.Pair != "" && second == "" {
		return 0
	}
	if p.isShort() {
		return 2
	}
	return 1 + p.random.IntN(2)
}
