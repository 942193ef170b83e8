package moves

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

const (
	// seekTime bounds one search for units. A buyer is asked to come back then: a server may be away, or moves be under
	// way whose process has died.
	seekTime = time.Second
	// verdictAge is for how long it is believed that no partition has units: as long as an api remembers any refusal. A
	// flood of buyers costs ten looks at each partition a second.
	verdictAge = 100 * time.Millisecond
	// keptVerdicts bounds the sales that are remembered.
	keptVerdicts = 4096
)

// errSeeking is the answer while it is neither known that there are units nor that there are none.
var errSeeking = pipeline.Errorf(pipeline.KindUnavailable,
	"units of the sale are on their way between its partitions; try again in a moment")

// Bring sees to it that a partition of a sale has so many units, where all of its partitions together have them. It
// reports whether there are: if not, so many were free nowhere at an instant that is at most verdictAge ago, and none
// was on its way. Errors: KindUnavailable, KindNotLoaded, KindOverloaded: it could not be found out in time.
func (m *Mover) Bring(ctx context.Context, sale *pipeline.Sale, home pipeline.Partition, units int) (bool, error) {
	if m.verdicts.soldOut(sale.ID, units) {
		m.Metrics.seeks.WithLabelValues("remembered").Inc()
		return false, nil
	}
	// Detached: it serves everybody who waits for it, and a move that was begun is better ended.
	seek := m.seeks.DoChan(fmt.Sprintf("%s %d %d", sale.ID, home, units), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), seekTime)
		defer cancel()
		return m.seek(ctx, sale, slices.Index(sale.Partitions, home), int64(units))
	})
	select {
	case got := <-seek:
		if got.Err != nil {
			m.Metrics.seeks.WithLabelValues("unknown").Inc()
			return false, got.Err
		}
		m.Metrics.seeks.WithLabelValues(map[bool]string{true: "brought", false: "sold-out"}[got.Val.(bool)]).Inc()
		return got.Val.(bool), nil
	case <-ctx.Done():
		return false, pipeline.Wrap(pipeline.KindUnavailable, ctx.Err(), "units were looked for")
	}
}

func (m *Mover) seek(ctx context.Context, sale *pipeline.Sale, home int, units int64) (bool, error) {
	backoff := retry.NewRequestBackoff()
	var failed error = errSeeking
	for ctx.Err() == nil {
		found, known, err := m.look(ctx, sale, home, units)
		if known {
			return found, nil
		}
		if err != nil {
			failed = err
		}
		backoff.Wait(ctx)
	}
	return false, failed
}

// look reads all partitions and moves units, once. Known says that the result counts.
func (m *Mover) look(ctx context.Context, sale *pipeline.Sale, home int, units int64) (found, known bool, err error) {
	began := time.Now()
	first, err := m.read(ctx, sale)
	if err != nil {
		return false, false, err
	}
	switch missing := units - first[home].stock; {
	case missing <= 0:
		return true, true, nil
	case first.free() >= units:
		from := first.richest(home)
		if from < 0 {
			return false, false, nil
		}
		// Half of what is there, so that a partition with many buyers does not come back for each of them. What the other
		// one has left serves its own buyers meanwhile.
		wanted := max(missing, first[from].stock/2)
		move, err := m.Move(ctx, sale.ID, sale.Partitions[from], sale.Partitions[home], wanted)
		return true, err == nil && move.Units >= missing, err
	}
	second, err := m.read(ctx, sale)
	if err != nil || !first.settled(second) {
		return false, false, err
	}
	m.verdicts.keep(sale.ID, verdict{free: first.free(), at: began})
	return false, true, nil
}

// verdict says how many units all partitions of a sale had together.
type verdict struct {
	free int64
	at   time.Time
}

// verdicts are those of the last moments, by sale.
type verdicts struct {
	mu    *sync.RWMutex // protects known
	known map[string]verdict
}

func newVerdicts() verdicts { return verdicts{mu: &sync.RWMutex{}, known: map[string]verdict{}} }

func (v *verdicts) keep(saleID string, is verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= keptVerdicts {
		clear(v.known)
	}
	v.known[saleID] = is
}

// soldOut reports whether so many units were free nowhere a moment ago. Both clocks are asked: the monotonic one stands
// still while the machine sleeps.
func (v *verdicts) soldOut(saleID string, units int) bool {
	v.mu.RLock()
	is, ok := v.known[saleID]
	v.mu.RUnlock()
	now := time.Now()
	age := max(now.Sub(is.at), now.Round(0).Sub(is.at.Round(0)))
	return ok && int64(units) > is.free && age >= 0 && age < verdictAge
}
