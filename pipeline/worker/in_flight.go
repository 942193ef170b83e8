package worker

import (
	"sync"

	"sluice/pipeline"
)

// inFlightEntries are the stream entries that this worker is processing. An entry that is pending for the worker but
// not in flight was delivered in a reply that never arrived, or was left to the worker that holds its lock.
type inFlightEntries struct {
	mu  sync.Mutex            // protects ids
	ids map[entryKey]struct{} // bounded by lanes × batch size
}

func newInFlightEntries() *inFlightEntries { return &inFlightEntries{ids: map[entryKey]struct{}{}} }

// begin adds the entries that are not in flight yet, and returns those.
func (f *inFlightEntries) begin(entries []entry) []entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	begun := make([]entry, 0, len(entries))
	for _, e := range entries {
		if _, inFlight := f.ids[e.entryKey]; inFlight {
			continue
		}
		f.ids[e.entryKey] = struct{}{}
		begun = append(begun, e)
	}
	return begun
}

func (f *inFlightEntries) end(entries []entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range entries {
		delete(f.ids, e.entryKey)
	}
}

func (f *inFlightEntries) has(p pipeline.Partition, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, inFlight := f.ids[entryKey{p, id}]
	return inFlight
}
