package process

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// gcPercent lets the heap grow to five times what lives before it is collected: what lives is a few dozen MiB, and
	// collecting it is a tenth of an api's CPU time at the default of 100.
	gcPercent = 400
	// defaultMemory is where that ends where there is no container with a limit: from there on the heap is collected as
	// often as it takes to stay below.
	defaultMemory = 384 << 20
)

// SpareCollections tunes the garbage collector for many short requests, or batches. GOGC and GOMEMLIMIT overrule it.
func SpareCollections() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit())
	}
}

// memoryLimit is what the heap may have: three quarters of the container, which leaves room for stacks and buffers of
// the kernel.
func memoryLimit() int64 {
	container, err := memlimit.FromCgroup()
	if err != nil || container > math.MaxInt64 { // no container, or none with a limit
		return defaultMemory
	}
	return int64(container) / 4 * 3
}
