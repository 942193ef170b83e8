package chaos

import (
	"cmp"
	"slices"
)

// Topology is what the stores are in a run: one of each, but for what is said.
type Topology string

// The topologies.
const (
	Single   Topology = "single"   // one Redis, behind a proxy for each process
	Sentinel Topology = "sentinel" // one Redis with a replica, and three sentinels
	Cluster  Topology = "cluster"  // a Redis Cluster: three masters, a replica for each
	// ReplicatedPostgres is a Postgres whose commits wait for its standby, which takes its place when it dies.
	ReplicatedPostgres Topology = "replicated-postgres"
	// Citus is a Postgres of three nodes: a coordinator, and two workers that have the sales.
	Citus Topology = "citus"
)

var (
	topologies = []Topology{Single, Sentinel, Cluster, ReplicatedPostgres, Citus}
	// replicated are those where a replica of Redis takes over by itself.
	replicated = []Topology{Sentinel, Cluster}
)

// isReplicated reports whether a replica of Redis takes over by itself.
func (t Topology) isReplicated() bool { return slices.Contains(replicated, t) }

// shards is how many servers of Redis hold a part of the data each, besides their replicas.
func (t Topology) shards() int {
	if t == Cluster {
		return 3
	}
	return 1
}

// durability is what the programs promise. What a replica has survives that it takes over.
func (t Topology) durability() string {
	if t.isReplicated() {
		return "replica"
	}
	return "fsync"
}

// has reports whether a kind can strike there.
func (t Topology) has(k kind) bool {
	in := traits[k].in
	return in == nil || slices.Contains(in, cmp.Or(t, Single))
}
