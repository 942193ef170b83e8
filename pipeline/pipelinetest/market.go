package pipelinetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"sluice/pipeline"
	"sluice/pipeline/admission"
)

// Market moves a sale all the time: buyers order, events are persisted, and if wanted orders expire and are given back.
type Market struct {
	*Rig
	stop     context.CancelFunc
	running  sync.WaitGroup
	Accepted atomic.Int64
	Released atomic.Int64
}

// OpenMarket lets buyers come to a sale while the test looks.
func (r *Rig) OpenMarket(seed uint64, expiring bool) *Market {
	m := &Market{Rig: r}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	persisted := make(chan pipeline.Event, 1<<16)
	for i := range 3 {
		m.running.Go(func() { m.buy(ctx, fmt.Sprintf("buyer-%d", i), rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	m.running.Go(func() { m.persistAll(ctx, persisted) })
	if expiring {
		m.running.Go(func() { m.expire(ctx, persisted) })
	}
	r.Cleanup(m.Close)
	return m
}

// Close lets everybody finish. What is in the stream then is left there.
func (m *Market) Close() {
	m.stop()
	m.running.Wait()
}

// buy orders in bursts, for a small crowd that orders again once its orders are given back.
func (m *Market) buy(ctx context.Context, name string, rnd *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		user := fmt.Sprintf("%s-%d", name, n)
		if rnd.IntN(2) == 0 {
			user = fmt.Sprintf("%s-again-%d", name, rnd.IntN(50))
		}
		decision, err := m.Try(pipeline.OrderRequest{UserID: user, Quantity: 1 + rnd.IntN(3)})
		if err != nil {
			m.Errorf("order: %v", err)
			return
		}
		if decision.Result == admission.Accepted {
			m.Accepted.Add(1)
		}
	}
}

func (m *Market) persistAll(ctx context.Context, persisted chan<- pipeline.Event) {
	for ctx.Err() == nil {
		events := m.Events(m.Sale)
		m.Persist(events[:min(len(events), pipeline.MaxPersistBatch)]...)
		for _, e := range events[:min(len(events), pipeline.MaxPersistBatch)] {
			select {
			case persisted <- e:
			default:
			}
		}
	}
}

func (m *Market) expire(ctx context.Context, persisted <-chan pipeline.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-persisted:
			m.End(e.OrderID)
			m.Release(e.UserID, e.OrderID)
			m.Applied(e.OrderID)
			m.Released.Add(1)
		}
	}
}
