package pipeline

// Generation counts the verifications of Redis; Postgres keeps the number. A worker knows the generation in which it
// fetched its events. Once that generation is over, Redis may have lost them in between, and they are submitted to it
// again (package resubmit) before they may be persisted.
type Generation int64

// ErrStaleGeneration says that nothing was persisted, because a verification has begun since the events were fetched.
var ErrStaleGeneration = Errorf(KindConflict, "the events were fetched before Redis was verified anew")
