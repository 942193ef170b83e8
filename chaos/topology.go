package chaos

import "cmp"

// Topology is what Redis is in a run.
type Topology string

// The topologies.
const (
	Single  Topology = "single"  // one Redis, behind a proxy for each process
	Cluster Topology = "cluster" // a Redis Cluster: three masters, a replica for each
)

var topologies = []Topology{Single, Cluster}

// durability is what a run's receipts promise. The accepts of a cluster survive that a replica takes over.
func (t Topology) durability() string {
	if t == Cluster {
		return "replica"
	}
	return "fsync"
}

// receipts is what every receipt of a run must promise; empty: any, because a master may be without its replica for a
// while.
func (t Topology) receipts() string {
	if t == Cluster {
		return ""
	}
	return t.durability()
}

// has reports whether a kind can strike there.
func (t Topology) has(k kind) bool {
	only := traits[k].only
	return only == "" || only == cmp.Or(t, Single)
}
