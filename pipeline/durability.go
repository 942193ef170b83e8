package pipeline

// Durability says what had been confirmed about an accept before the buyer got the receipt. Each level includes those
// before it.
type Durability string

// The levels, from weak to strong.
const (
	DurabilityMemory  Durability = "memory"  // in the memory of one Redis process: nothing but its reply confirms it
	DurabilityFsync   Durability = "fsync"   // on the disk of that process as well
	DurabilityReplica Durability = "replica" // on that disk, and received by at least one replica
)
