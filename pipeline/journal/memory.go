package journal

import (
	"sync"
	"time"

	"sluice/pipeline"
)

const (
	// memoryAge is how long an accept is remembered that the disk did not take: far longer than workers usually need to
	// bring it to Postgres.
	memoryAge = 10 * time.Minute
	// memoryLimit bounds what is remembered, some 40 MB.
	memoryLimit = 1 << 17
)

// memory remembers the latest accepts that are not on disk.
type memory struct {
	mu      sync.Mutex // protects the rest
	accepts []remembered
	first   int // index of the oldest; those before it are forgotten
}

type remembered struct {
	pipeline.Accept
	at time.Time // by this machine's monotonic clock
}

func (m *memory) add(accepts []pipeline.Accept) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for m.first < len(m.accepts) {
		old, full := now.Sub(m.accepts[m.first].at) > memoryAge, len(m.accepts)-m.first+len(accepts) > memoryLimit
		if !old && !full {
			break
		}
		m.accepts[m.first] = remembered{} // frees its strings
		m.first++
	}
	if m.first > len(m.accepts)/2 { // each is moved at most once for each that is added
		m.accepts = append(m.accepts[:0], m.accepts[m.first:]...)
		m.first = 0
	}
	for i := range accepts {
		m.accepts = append(m.accepts, remembered{accepts[i], now})
	}
}

// of returns what is remembered of some partitions, oldest first.
func (m *memory) of(wanted func(pipeline.Partition) bool) map[pipeline.SalePartition][]pipeline.Accept {
	m.mu.Lock()
	defer m.mu.Unlock()
	accepts := map[pipeline.SalePartition][]pipeline.Accept{}
	now := time.Now()
	for i := m.first; i < len(m.accepts); i++ {
		if a := &m.accepts[i]; wanted(a.Partition) && now.Sub(a.at) <= memoryAge {
			at := pipeline.SalePartition{SaleID: a.SaleID, Partition: a.Partition}
			accepts[at] = append(accepts[at], a.Accept)
		}
	}
	return accepts
}

// oldest returns up to n orders, oldest first.
func (m *memory) oldest(n int) []pipeline.OrderKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	var orders []pipeline.OrderKey
	for i := m.first; i < len(m.accepts) && len(orders) < n; i++ {
		orders = append(orders, keyOf(&m.accepts[i].Accept))
	}
	return orders
}

// olderThan counts the accepts that are remembered for that long.
func (m *memory) olderThan(age time.Duration) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := m.first; i < len(m.accepts) && time.Since(m.accepts[i].at) >= age; i++ {
		n++
	}
	return n
}

// forget drops orders that oldest returned, as far as they are the oldest still.
func (m *memory) forget(orders []pipeline.OrderKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range orders {
		if m.first < len(m.accepts) && m.accepts[m.first].OrderID == o.OrderID {
			m.accepts[m.first] = remembered{}
			m.first++
		}
	}
}
