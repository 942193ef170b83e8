package programs

import (
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// Warnings collects what processes complain about. The zero value keeps nothing but counts; Keep says how many lines
// it keeps.
type Warnings struct {
	Keep int

	mu     sync.Mutex // protects the rest
	lines  []Line     // the last ones
	counts map[string]int
}

// Add keeps a serious line, but for the warning of AUTH_MODE=dev, which every process here gives.
func (w *Warnings) Add(line Line) {
	if !line.Serious() || strings.HasPrefix(line.Message, "AUTH_MODE=dev") {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts == nil {
		w.counts = map[string]int{}
	}
	w.counts[line.Process[:min(3, len(line.Process))]+"…: "+line.Message]++
	w.lines = append(w.lines, line)
	w.lines = w.lines[max(0, len(w.lines)-w.Keep):]
}

// Lines are the last warnings, the oldest first, each with its time in a layout of package time; "" leaves the time
// out.
func (w *Warnings) Lines(layout string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	for i := range w.lines {
		lines = append(lines, w.lines[i].Time.Format(layout)+w.lines[i].Process+": "+w.lines[i].Text())
	}
	return lines
}

// Counts says how often each warning came, by kind of program and message.
func (w *Warnings) Counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.counts)
}

// Environ is the part of our environment that any process needs, without the settings of another installation that
// may be in it.
func Environ() []string {
	keep := []string{"PATH", "HOME", "TMPDIR", "LANG", "GOMAXPROCS", "GODEBUG", "GORACE", "GOCOVERDIR"}
	return slices.DeleteFunc(os.Environ(), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return !slices.Contains(keep, name) && !strings.HasPrefix(name, "SLUICE_")
	})
}
