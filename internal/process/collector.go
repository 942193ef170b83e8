package process

import (
	"os"
	"runtime/debug"
)

const (
	// gcPercent lets the heap grow to five times what lives before it is collected: what lives is a few dozen MiB, and
	// collecting it is a tenth of an api's CPU time at the default of 100.
	gcPercent = 400
	// memoryLimit is where that ends: from there on the heap is collected as often as it takes to stay below. A container
	// of 512 MiB, as in docker-compose.yml, has room for it.
	memoryLimit = 384 << 20
)

// SpareCollections tunes the garbage collector for many short requests, or batches. GOGC and GOMEMLIMIT overrule it.
func SpareCollections() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}
