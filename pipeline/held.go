package pipeline

import "sync"

// heldEntries are the stream entries that this worker has in hand. What is pending for the worker but not held was
// delivered by a reply that never arrived, or was left to another holder of its lock.
type heldEntries struct {
	mu  sync.Mutex
	ids map[entryKey]struct{} // bounded by lanes × batch size
}

type entryKey struct {
	partition Partition
	id        string
}

func newHeldEntries() *heldEntries { return &heldEntries{ids: map[entryKey]struct{}{}} }

// take adds the entries that nobody holds yet and returns those.
func (h *heldEntries) take(entries []Entry) []Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := make([]Entry, 0, len(entries))
	for _, e := range entries {
		key := entryKey{e.Partition, e.ID}
		if _, held := h.ids[key]; held {
			continue
		}
		h.ids[key] = struct{}{}
		taken = append(taken, e)
	}
	return taken
}

func (h *heldEntries) drop(entries []Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range entries {
		delete(h.ids, entryKey{e.Partition, e.ID})
	}
}

func (h *heldEntries) has(p Partition, id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, held := h.ids[entryKey{p, id}]
	return held
}
