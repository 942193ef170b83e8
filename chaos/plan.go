package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// The processes that a plan is made for.
const (
	apiCount    = 2
	workerCount = 3
)

const (
	planLead = 2 * time.Second         // the sale runs before the first fault …
	planTail = 2 * time.Second         // … and after the last one has ended
	meanGap  = 2500 * time.Millisecond // between the beginnings of two faults, on average
	// lossLead is how long before a loss of Redis' data no API is touched, lossTail how long after it: they
	// remember what was accepted last, and resubmit it once Redis is back.
	lossLead = time.Second
	lossTail = 5 * time.Second
)

// step is one fault of a plan.
type step struct {
	Number int           // from 1, by time
	At     time.Duration // after the start
	For    time.Duration // until it is undone; 0 for what happens at once
	Kind   kind
	Target string // api-1, worker-2, redis, postgres, or a connection: buyers>api-1, api-1>redis, worker-2>postgres
	Worker string // of a loss: the worker that has events in flight meanwhile; "" otherwise
	Random uint64 // for what is left to decide when it happens: how slow, which reply
}

// occupies are the processes and servers that a fault strikes or needs left alone: one fault at a time for each.
func (s step) occupies() []string {
	from, to, link := strings.Cut(s.Target, ">")
	if link && from == "buyers" {
		from = to
	}
	needs := []string{from}
	if s.Worker != "" {
		needs = append(needs, s.Worker)
	}
	if traits[s.Kind].loses {
		for i := range apiCount {
			needs = append(needs, processName("api", i))
		}
	}
	return needs
}

func (s step) String() string {
	return fmt.Sprintf("#%d at %.1fs for %.1fs: %s, %s", s.Number, s.At.Seconds(), s.For.Seconds(), s.Kind, s.Target)
}

// newPlan makes the faults of a run. The same arguments give the same plan. First each kind has its turn, in random
// order; from then on they come by weight. The rules:
//
//   - one fault at a time for each process and each server: two would hide each other
//   - faults of different ones overlap freely, but for losses of Redis' data: from lossLead before to lossTail after
//     one,
//     no API is touched, nor the worker that has events in flight meanwhile
//   - all is over planTail before the end
func newPlan(o Options) []step {
	if o.Calm {
		return nil
	}
	random := rand.New(rand.NewPCG(o.Seed, 1))
	for {
		p := planner{random: random, busy: map[string]time.Duration{}, clock: planLead, end: o.Duration - planTail}
		if kinds := p.shuffled(o); p.each(kinds) { // in a short run some orders of the kinds don't fit
			p.fill(kinds)
			return p.steps
		}
	}
}

type planner struct {
	random *rand.Rand
	busy   map[string]time.Duration // until when a process or server has its fault
	clock  time.Duration            // no step begins earlier: steps are in the order of time
	end    time.Duration
	steps  []step
}

// each gives each kind its turn. It is false when they take longer than there is time.
func (p *planner) each(kinds []kind) bool {
	for n, kind := range kinds {
		if !p.add(kind, min(meanGap, (p.end-p.clock)/time.Duration(len(kinds)-n))) {
			return false
		}
	}
	return true
}

// fill goes on by weight until the time is over.
func (p *planner) fill(kinds []kind) {
	for p.add(p.pick(kinds), meanGap) {
	}
}

// add places one more step, and the clock a gap later.
func (p *planner) add(k kind, gap time.Duration) bool {
	s, ok := p.place(k)
	if !ok {
		return false
	}
	p.steps = append(p.steps, s)
	p.clock = s.At + gap/2 + time.Duration(p.random.Int64N(int64(max(gap, 1))))
	return true
}

func (p *planner) shuffled(o Options) []kind {
	var all []kind
	for _, k := range kinds {
		if !o.Lossless || !traits[k].loses {
			all = append(all, k)
		}
	}
	p.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func (p *planner) pick(kinds []kind) kind {
	total := 0
	for _, k := range kinds {
		total += traits[k].weight
	}
	n := p.random.IntN(total)
	for _, k := range kinds {
		if n -= traits[k].weight; n < 0 {
			return k
		}
	}
	return kinds[len(kinds)-1]
}

// place finds the first moment at which a fault may strike. It is false when that is too late.
func (p *planner) place(k kind) (step, bool) {
	t := traits[k]
	lasts := t.min + time.Duration(p.random.Int64N(int64(t.max-t.min)+1))
	s := step{Number: len(p.steps) + 1, For: lasts, Kind: k, Target: p.target(t.where)}
	if t.loses {
		s.Worker = p.freest("worker", workerCount)
	}
	needs := s.occupies()
	at := p.clock
	for _, name := range needs {
		at = max(at, p.busy[name])
	}
	until := at + lasts
	if t.loses {
		at, until = at+lossLead, at+lossLead+lasts+lossTail
	}
	if at+lasts > p.end {
		return step{}, false
	}
	for _, name := range needs {
		p.busy[name] = until
	}
	s.At, s.Random = at, p.random.Uint64()
	return s, true
}

func processName(program string, i int) string { return fmt.Sprintf("%s-%d", program, i+1) }

// target chooses where a fault strikes.
func (p *planner) target(where targets) string {
	switch where {
	case anAPI:
		return p.freest("api", apiCount)
	case aWorker:
		return p.freest("worker", workerCount)
	case postgresServer:
		return "postgres"
	case aConnection:
		return p.connection()
	case redisServer:
	}
	return "redis"
}

// freest chooses among those that are free at the moment, or else takes the one that is free first.
func (p *planner) freest(program string, count int) string {
	var free []string
	first := processName(program, 0)
	for i := range count {
		name := processName(program, i)
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

// connection chooses a pair: each has the same chance, as far as its process is free.
func (p *planner) connection() string {
	all := 3*apiCount + 2*workerCount
	if n := p.random.IntN(all); n >= 3*apiCount {
		return p.freest("worker", workerCount) + []string{">redis", ">postgres"}[n%2]
	}
	api := p.freest("api", apiCount)
	return []string{"buyers>" + api, api + ">redis", api + ">postgres"}[p.random.IntN(3)]
}
