package worker

import (
	"sync"

	"sluice/pipeline"
)

// inFlightEntries are the stream entries that this worker is processing. What is pending for the worker but not in flight was
// delivered by a reply that never arrived, or was left to the worker that has its lock.
type inFlightEntries struct {
	mu  sync.Mutex            // protects ids
	ids map[entryKey]struct{} // bounded by lanes × batch size
}

type entryKey struct {
	partition pipeline.Partition
	id        string
}

func newInFlightEntries() *inFlightEntries { return &inFlightEntries{ids: map[entryKey]struct{}{}} }

// begin adds the entries that are not in flight yet, and returns those.
func (f *inFlightEntries) begin(entries []Entry) []Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	begun := make([]Entry, 0, len(entries))
	for _, e := range entries {
		key := entryKey{e.Partition, e.ID}
		if _, inFlight := f.ids[key]; inFlight {
			continue
		}
		f.ids[key] = struct{}{}
		begun = append(begun, e)
	}
	return begun
}

func (f *inFlightEntries) end(entries []Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range entries {
		delete(f.ids, entryKey{e.Partition, e.ID})
	}
}

func (f *inFlightEntries) has(p pipeline.Partition, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, inFlight := f.ids[entryKey{p, id}]
	return inFlight
}
