package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice/pipeline/redisstore"
)

// Machine is what the numbers were measured on; without it they say nothing.
type Machine struct {
	CPU       string  `json:"cpu"`
	Cores     int     `json:"cores"`
	System    string  `json:"system"`
	Go        string  `json:"go"`
	Redis     string  `json:"redis"`
	Postgres  string  `json:"postgres"`
	Flush     float64 `json:"flush_us"` // median of writing 4 KiB and flushing it to the disk that both servers use, µs
	LoadAtRun string  `json:"load"`     // before we began
}

func (s *testbed) machine(ctx context.Context) (Machine, error) {
	m := Machine{
		CPU: cpuName(), Cores: runtime.NumCPU(), System: systemName(), LoadAtRun: s.load,
		Go: fmt.Sprintf("%s, GOMAXPROCS %d", runtime.Version(), runtime.GOMAXPROCS(0)),
	}
	features, err := redisstore.Probe(ctx, s.rdb)
	if err != nil {
		return m, err
	}
	m.Redis = fmt.Sprintf("%s, appendonly %t, appendfsync %s, maxmemory-policy %s, unix socket",
		features.Version, features.AppendOnly, features.AppendFsync, features.Policy)
	if m.Postgres, err = s.postgresSettings(ctx); err != nil {
		return m, err
	}
	m.Flush, err = measureFlush(s.servers.Dir())
	return m, err
}

func (s *testbed) postgresSettings(ctx context.Context) (string, error) {
	parts := []string{""}
	if err := s.pool.QueryRow(ctx, `show server_version`).Scan(&parts[0]); err != nil {
		return "", err
	}
	for _, name := range []string{"fsync", "synchronous_commit", "wal_sync_method", "full_page_writes", "shared_buffers"} {
		var value string
		if err := s.pool.QueryRow(ctx, `select current_setting($1)`, name).Scan(&value); err != nil {
			return "", err
		}
		parts = append(parts, name+" "+value)
	}
	return strings.Join(append(parts, "unix socket"), ", "), nil
}

// measureFlush measures what "on disk" costs here: microseconds on a disk with a safe cache, milliseconds on a plain
// one, next to nothing where it is not a disk at all.
func measureFlush(dir string) (float64, error) {
	file, err := os.Create(filepath.Join(dir, "flush"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	const times = 64
	page, took := make([]byte, 4096), make([]float64, times)
	for i := range took {
		began := time.Now()
		if _, err := file.Write(page); err != nil {
			return 0, err
		}
		if err := file.Sync(); err != nil {
			return 0, err
		}
		took[i] = float64(time.Since(began).Microseconds())
	}
	return spreadOf(took).Median, os.Remove(file.Name())
}

func cpuName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	return parseCPU(string(text))
}

func parseCPU(text string) string {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func systemName() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return runtime.GOOS
	}
	return unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
}

// loadAverage is the machine's load over the last minute; above 0 it has other things to do.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	fields := strings.Fields(string(text))
	return strings.Join(slices.Clip(fields[:min(1, len(fields))]), "")
}
