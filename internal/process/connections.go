package process

import (
	"net/netip"
	"runtime/debug"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi"
	"sluice/httpapi/limits"
	"sluice/internal/config"
)

const (
	// reservedDescriptors are kept for the operations side, the stores, the journal and the log, so that an api whose
	// connections are used up can still be looked at.
	reservedDescriptors = 256
	// connectionMemory is what one connection is allowed for: buffers and stacks (30 KiB), and the largest body there is
	// (64 KiB), of which the last byte may never come.
	connectionMemory = 96 << 10
	// tlsConnectionMemory is that of one over TLS, which also keeps a record of 16 KiB for each way, and the keys.
	tlsConnectionMemory = connectionMemory + 40<<10
	// maxHeld is how many refused connections are held, and heldShare the share of all connections that they may be
	// besides: they need a descriptor each and next to no memory.
	maxHeld, heldShare = 4096, 8
	// leastConnections is what an api has wherever it runs.
	leastConnections = 64
)

// publicConnections are the limits of the public listener.
func publicConnections(cfg config.Config, reg prometheus.Registerer) limits.Connections {
	l := cfg.HTTP
	most, memory := l.Connections, int64(connectionMemory)
	if cfg.HTTPTLS.Set() {
		memory = tlsConnectionMemory
	}
	if most == 0 {
		most = possibleConnections(memory)
	}
	return limits.Connections{
		Total:     limits.NewConcurrent[string]("connections", most),
		PerClient: limits.NewConcurrent[netip.Prefix]("client-connections", l.ClientConnections),
		Opened:    limits.NewLimiter[netip.Prefix]("opened", l.Client),
		Addresses: limits.NewAddresses(l.TrustedProxies),
		Refused:   httpapi.CountRefused(reg),
		Held:      min(maxHeld, most/heldShare),
	}
}

// possibleConnections is how many connections this process has descriptors for, and memory, each needing so much.
func possibleConnections(memory int64) int {
	most := debug.SetMemoryLimit(-1) / memory // -1 only reads it
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil && files.Cur < 1<<31 {
		most = min(most, (int64(files.Cur)-reservedDescriptors)*heldShare/(heldShare+1))
	}
	return int(max(most, leastConnections))
}
