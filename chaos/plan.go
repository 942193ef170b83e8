package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// The cast that a plan is made for.
const (
	apiCount    = 2
	workerCount = 3
)

const (
	planLead = 2 * time.Second         // the sale runs before the first fault …
	planTail = 2 * time.Second         // … and after the last one has ended
	meanGap  = 2500 * time.Millisecond // between the beginnings of two faults, on average
	// lossLead is how long before a loss of Redis' data no API is touched, lossTail how long after it: they are the
	// witnesses of what was accepted last, and their word is asked for once Redis is back.
	lossLead = time.Second
	lossTail = 5 * time.Second
)

// Step is one fault of a plan.
type Step struct {
	Number int           // from 1, by time
	At     time.Duration // after the start
	For    time.Duration // until it is undone; 0 for what happens at once
	Kind   Kind
	Target string // api-1, worker-2, redis, postgres, or a link: buyers>api-1, api-1>redis, worker-2>postgres
	Hand   string // of a loss: the worker that has events in hand across it; "" otherwise
	Dice   uint64 // for what is left to decide when it happens: how slow, which reply
}

// occupies are the processes and servers that a fault strikes or needs left alone: one fault at a time for each.
func (s Step) occupies() []string {
	from, to, link := strings.Cut(s.Target, ">")
	if link && from == "buyers" {
		from = to
	}
	needs := []string{from}
	if s.Hand != "" {
		needs = append(needs, s.Hand)
	}
	if traits[s.Kind].loses {
		for i := range apiCount {
			needs = append(needs, member("api", i))
		}
	}
	return needs
}

func (s Step) String() string {
	return fmt.Sprintf("#%d at %.1fs for %.1fs: %s, %s", s.Number, s.At.Seconds(), s.For.Seconds(), s.Kind, s.Target)
}

// newPlan makes the faults of a run. The same arguments give the same plan. First each kind has its turn, in random order;
// from then on they come by weight. The rules:
//
//   - one fault at a time for each process and each server: two would hide each other
//   - faults of different ones overlap freely, but for losses of Redis' data: from lossLead before to lossTail after one,
//     no API is touched, nor the worker that has events in hand across it
//   - all is over planTail before the end
func newPlan(o Options) []Step {
	if o.Calm {
		return nil
	}
	random := rand.New(rand.NewPCG(o.Seed, 1))
	for {
		p := planner{random: random, busy: map[string]time.Duration{}, clock: planLead, end: o.Duration - planTail}
		if deck := p.deck(o); p.deal(deck) { // in a short run some orders of the kinds don't fit
			p.fill(deck)
			return p.steps
		}
	}
}

type planner struct {
	random *rand.Rand
	busy   map[string]time.Duration // until when a process or server has its fault
	clock  time.Duration            // no step begins earlier: steps are in the order of time
	end    time.Duration
	steps  []Step
}

// deal gives each kind its turn. It is false when they take longer than there is time.
func (p *planner) deal(deck []Kind) bool {
	for n, kind := range deck {
		if !p.add(kind, min(meanGap, (p.end-p.clock)/time.Duration(len(deck)-n))) {
			return false
		}
	}
	return true
}

// fill goes on by weight until the time is over.
func (p *planner) fill(deck []Kind) {
	for p.add(p.pick(deck), meanGap) {
	}
}

// add places one more step, and the clock a gap later.
func (p *planner) add(kind Kind, gap time.Duration) bool {
	step, ok := p.place(kind)
	if !ok {
		return false
	}
	p.steps = append(p.steps, step)
	p.clock = step.At + gap/2 + time.Duration(p.random.Int64N(int64(max(gap, 1))))
	return true
}

func (p *planner) deck(o Options) []Kind {
	var deck []Kind
	for _, k := range kinds {
		if !o.Lossless || !traits[k].loses {
			deck = append(deck, k)
		}
	}
	p.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

func (p *planner) pick(deck []Kind) Kind {
	total := 0
	for _, k := range deck {
		total += traits[k].weight
	}
	n := p.random.IntN(total)
	for _, k := range deck {
		if n -= traits[k].weight; n < 0 {
			return k
		}
	}
	return deck[len(deck)-1]
}

// place finds the first moment at which a fault may strike. It is false when that is too late.
func (p *planner) place(kind Kind) (Step, bool) {
	t := traits[kind]
	lasts := t.min + time.Duration(p.random.Int64N(int64(t.max-t.min)+1))
	step := Step{Number: len(p.steps) + 1, For: lasts, Kind: kind, Target: p.target(t.where)}
	if t.loses {
		step.Hand = p.freest("worker", workerCount)
	}
	needs := step.occupies()
	at := p.clock
	for _, name := range needs {
		at = max(at, p.busy[name])
	}
	until := at + lasts
	if t.loses {
		at, until = at+lossLead, at+lossLead+lasts+lossTail
	}
	if at+lasts > p.end {
		return Step{}, false
	}
	for _, name := range needs {
		p.busy[name] = until
	}
	step.At, step.Dice = at, p.random.Uint64()
	return step, true
}

func member(program string, i int) string { return fmt.Sprintf("%s-%d", program, i+1) }

// target chooses where a fault strikes.
func (p *planner) target(where targets) string {
	switch where {
	case anAPI:
		return p.freest("api", apiCount)
	case aWorker:
		return p.freest("worker", workerCount)
	case postgresServer:
		return "postgres"
	case aLink:
		return p.link()
	case redisServer:
	}
	return "redis"
}

// freest chooses among those that are free at the moment, or else takes the one that is free first.
func (p *planner) freest(program string, count int) string {
	var free []string
	first := member(program, 0)
	for i := range count {
		name := member(program, i)
		if p.busy[name] <= p.clock {
			free = append(free, name)
		}
		if p.busy[name] < p.busy[first] {
			first = name
		}
	}
	if len(free) == 0 {
		return first
	}
	return free[p.random.IntN(len(free))]
}

// link chooses a pair: each has the same chance, as far as its process is free.
func (p *planner) link() string {
	links := 3*apiCount + 2*workerCount
	if n := p.random.IntN(links); n >= 3*apiCount {
		return p.freest("worker", workerCount) + []string{">redis", ">postgres"}[n%2]
	}
	api := p.freest("api", apiCount)
	return []string{"buyers>" + api, api + ">redis", api + ">postgres"}[p.random.IntN(3)]
}
