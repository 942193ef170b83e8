package pipeline

// Generation counts the verifications of Redis, as Postgres keeps it. Whoever holds events in hand knows the generation in
// which they were fetched; when it is over, Redis may have lost them meanwhile, and they are shown to it again (readmit.go)
// before they may be persisted.
type Generation int64

// ErrStaleGeneration says that nothing was persisted, because a verification has begun since the events were fetched.
var ErrStaleGeneration = Errorf(KindConflict, "the events were fetched before Redis was verified anew")
