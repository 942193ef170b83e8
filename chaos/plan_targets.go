package chaos

import (
	"fmt"
	"slices"
	"time"
)

// second chooses a fault that begins so long after a first one, the first of others. It strikes nothing that is struck
// then.
func (p *planner) second(others []step, after time.Duration) (step, bool) {
	first := others[0]
	at := first.At + after
	busy := map[string]bool{}
	for _, s := range others {
		if s.Number == first.Number || s.At+s.on() > at || missesStore(first, s) {
			for _, name := range s.occupies() {
				busy[name] = true
			}
		}
	}
	k := p.least(func(k kind) (bool, int) {
		_, wanted := p.opts.pair()
		if p.opts.Pair != "" && k != wanted || !inTime(first, k, after) {
			return false, 0
		}
		_, fits := p.place(k, busy)
		return fits, p.pairs[[2]class{traits[first.Kind].class, traits[k].class}]
	})
	if k == "" {
		return step{}, false
	}
	s, _ := p.place(k, busy)
	s.At, s.During = at, first.Number
	return s, true
}

// missesStore reports whether a process that is killed during a first fault has to wait for its end: none starts while
// a store is away.
func missesStore(first, s step) bool {
	class := traits[s.Kind].class
	return traits[first.Kind].away && (class == apiDies || class == workerDies)
}

// inTime reports whether a kind may come so long after the beginning of a first one. While a store is away for long,
// what ends all accepts comes late: an API that can't start again, a Redis that can't be verified without Postgres.
func inTime(first step, k kind, after time.Duration) bool {
	t := traits[first.Kind]
	if !t.away || first.For <= t.max {
		return true
	}
	switch traits[k].class {
	case postgresLoses: // its repair needs Redis
		return false
	case apiDies, redisAway, redisLoses:
		return after > first.For*3/5
	case workerDies:
		return after > first.For*2/5
	case postgresAway, apiStill, workerStill, network, clocks, nuisance:
	}
	return true
}

// least chooses a kind: those that need a turn and had none yet before the others, then by how often the plan has what
// they stand for, then by their own turns. It is empty where none is suitable.
func (p *planner) least(count func(kind) (suitable bool, n int)) kind {
	var chosen kind
	var best [3]int
	for _, i := range p.random.Perm(len(kinds)) {
		k := kinds[i]
		if !p.opts.takes(k) {
			continue
		}
		suitable, n := count(k)
		key := [3]int{min(p.used[k], 1), n, p.used[k]}
		if !p.opts.needs(k) {
			key[0] = 1
		}
		if suitable && (chosen == "" || slices.Compare(key[:], best[:]) < 0) {
			chosen, best = k, key
		}
	}
	return chosen
}

// place makes a step of a kind that strikes nothing that is busy. It is false where all that it can strike is.
func (p *planner) place(k kind, busy map[string]bool) (step, bool) {
	t := traits[k]
	if (t.loses || t.mislays) && busy[onlyCopy] {
		return step{}, false
	}
	s := step{Kind: k, For: t.min + time.Duration(p.random.Int64N(int64(t.max-t.min)+1))}
	free := func(names []string) (list []string) {
		return slices.DeleteFunc(names, func(name string) bool {
			return slices.ContainsFunc(struck(name), func(one string) bool { return busy[one] })
		})
	}
	one := func(names []string) string {
		if names = free(names); len(names) > 0 {
			return names[p.random.IntN(len(names))]
		}
		return ""
	}
	switch t.where {
	case anAPI:
		s.Target = one(processNames("api", apiCount))
	case aWorker:
		s.Target = one(processNames("worker", workerCount))
	case allAPIs:
		s.Target = one([]string{"apis"})
	case allWorkers:
		s.Target = one([]string{"workers"})
	case redisServer:
		s.Target = one([]string{"redis"})
	case postgresServer:
		s.Target = one([]string{"postgres"})
		if k == endBackends && one(slices.Concat(processNames("api", apiCount), processNames("worker", workerCount))) == "" {
			return s, false // nobody is connected
		}
	case redisWatch:
		s.Target = one([]string{"redis clock"})
	case postgresWatch:
		s.Target = one([]string{"postgres clock"})
	case bothServers:
		s.Target = one([]string{"servers"})
	case aConnection:
		s.Target = one(p.connections(busy))
	case aShard:
		s.Target = one(processNames("shard", p.opts.Topology.shards()))
	}
	if t.loses {
		s.Worker = one(processNames("worker", workerCount))
	}
	if k == splitBrain {
		s.API = one(processNames("api", apiCount))
	}
	return s, s.Target != "" && (!t.loses || s.Worker != "") && (k != splitBrain || s.API != "")
}

// connections are all between processes and servers that are not busy, but for those to a Redis that replicates.
func (p *planner) connections(busy map[string]bool) []string {
	var list []string
	for _, api := range processNames("api", apiCount) {
		list = append(list, "buyers>"+api)
	}
	for _, server := range []string{"redis", "postgres"} {
		if busy[server] || server == "redis" && p.opts.Topology.isReplicated() {
			continue
		}
		for _, process := range slices.Concat(processNames("api", apiCount), processNames("worker", workerCount)) {
			list = append(list, process+">"+server)
		}
	}
	return list
}

func processName(program string, i int) string { return fmt.Sprintf("%s-%d", program, i+1) }

func processNames(program string, count int) []string {
	var names []string
	for i := range count {
		names = append(names, processName(program, i))
	}
	return names
}

// canMeet reports whether one kind can strike while another one is on.
func canMeet(first, second kind) bool {
	p := newPlanner(Options{Seed: 1, Duration: time.Minute}, newRandom(1))
	a, _ := p.place(first, nil)
	busy := map[string]bool{}
	for _, name := range a.occupies() {
		busy[name] = true
	}
	_, fits := p.place(second, busy)
	return fits
}
