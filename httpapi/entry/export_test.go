package entry

// The limits of the hook: calls under way at once, and those that wait besides.
const (
	MaxHookCalls   = maxHookCalls
	MaxHookWaiting = maxHookWaiting
)
