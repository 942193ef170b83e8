package chaos

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"sluice/internal/localservers"
	"sluice/pipeline"
)

// The bounds of a run, and why.
const (
	minDuration = 60 * time.Second // below, not every kind of fault has its turn
	maxDuration = 2 * time.Hour    // the history is kept in memory, some 100 MB per hour
	maxClients  = 512              // descriptors; the machine is busy long before
	maxRate     = 50_000
)

// Options say what to run. Zero values get the defaults.
type Options struct {
	Duration time.Duration // how long faults are injected; 60 s
	Seed     uint64        // of everything random; a new one when 0
	Clients  int           // buyers' requests under way at once; 128, because those at a frozen API wait for seconds
	Rate     int           // requests per second at most; 2400: the faults, not the processors, shall be the limit
	Calm     bool          // no faults at all: what the sale does by itself
	Least    bool          // programs have users of Redis with the rights they need and no more, and send no scripts
	Lossless bool          // leave out the faults that take data from a store
	Topology Topology      // what Redis is; Single
	Log      io.Writer     // gets every line that the programs write, each by one call of Write; nil: nothing does
	// Pair is two kinds with a slash between them, or one: only these, again and again; empty: all.
	Pair string
	// Durability is what receipts shall promise: memory, fsync, replica; as much as the topology can.
	Durability string
}

// WithDefaults fills in what is not set.
func (o Options) WithDefaults() Options {
	if o.Duration == 0 {
		o.Duration = time.Minute
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	if o.Clients == 0 {
		o.Clients = 128
	}
	if o.Rate == 0 {
		o.Rate = 2400
	}
	if o.Topology == "" {
		o.Topology = Single
	}
	if o.Durability == "" {
		o.Durability = o.Topology.durability()
	}
	return o
}

// Validate returns every broken rule at once.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.Duration <= maxDuration && (o.Calm || o.Duration >= minDuration), "a run of %s: use %s to %s", o.Duration,
		minDuration, maxDuration)
	check(o.Clients >= 1 && o.Clients <= maxClients, "%d clients: use 1 to %d", o.Clients, maxClients)
	check(o.Rate >= 1 && o.Rate <= maxRate, "%d requests per second: use 1 to %d", o.Rate, maxRate)
	check(slices.Contains(topologies, o.Topology), "topology %q: use one of %q", o.Topology, topologies)
	check(o.Topology == Single || !o.Least, "users of Redis can't be had with the topology %s", o.Topology)
	if o.Pair != "" {
		first, second := o.pair()
		check(o.Topology.has(first) && (second == "" || o.Topology.has(second)), "pair %q: not with the topology %s",
			o.Pair, o.Topology)
		meets := second == "" || slices.Contains(kinds, second) && canMeet(first, second)
		check(slices.Contains(kinds, first) && !traits[first].brief && meets,
			"pair %q: use one kind, or two with a slash between them that strike different servers: %q", o.Pair, kinds)
	}
	levels := []pipeline.Durability{pipeline.DurabilityMemory, pipeline.DurabilityFsync, pipeline.DurabilityReplica}
	check(slices.Contains(levels, pipeline.Durability(o.Durability)), "durability %q: use one of %q", o.Durability, levels)
	return errors.Join(errs...)
}

// receipts is what every receipt of a run must promise; empty: any, because a server may be without its replica for a
// while.
func (o Options) receipts() string {
	if o.Durability == string(pipeline.DurabilityReplica) {
		return ""
	}
	return o.Durability
}

// pair is the only one that is planned, if Pair is set; the second is empty where there is only one kind.
func (o Options) pair() (first, second kind) {
	a, b, _ := strings.Cut(o.Pair, "/")
	return kind(strings.TrimSpace(a)), kind(strings.TrimSpace(b))
}

// needs reports whether a kind must have its turn. In a short run there is not always time for Postgres to go back.
func (o Options) needs(k kind) bool {
	return o.takes(k) && !(o.Duration < shortRun && o.Pair == "" && traits[k].mislays)
}

// takes reports whether a kind is part of the run.
func (o Options) takes(k kind) bool {
	switch {
	case o.Calm || !o.Topology.has(k):
		return false
	case o.Pair != "":
		first, second := o.pair()
		return k == first || k == second
	case traits[k].class == clocks && !localservers.CanMoveClocks():
		return false
	case (traits[k].loses || traits[k].mislays) && o.Lossless:
		return false
	}
	return true
}
