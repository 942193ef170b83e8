package pipeline_test

import (
	"context"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

// runHub runs a hub until the test ends, or it is stopped.
func (r *rig) runHub(c pipeline.HubConfig) (*pipeline.Hub, func()) {
	c.Redis, c.Keys, c.Partitions, c.Orders, c.Registerer, c.Log = r.rdb, r.keys, r.opts.Partitions, r.store, r.registry, r.log
	hub := pipeline.NewHub(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		hub.Run(ctx)
	}()
	stop := func() {
		cancel()
		<-done
	}
	r.Cleanup(stop)
	return hub, stop
}

func (r *rig) watch(hub *pipeline.Hub, orderID string) *pipeline.Watch {
	r.Helper()
	w, err := hub.Watch(r.sale.ID, orderID, 0)
	if err != nil {
		r.Fatalf("watch: %v", err)
	}
	r.Cleanup(w.Close)
	return w
}

// told waits for a watch's next change and expects a version.
func (r *rig) told(w *pipeline.Watch, version int) pipeline.Order {
	r.Helper()
	select {
	case order, open := <-w.Changes():
		if !open || order.Version != version {
			r.Fatalf("told: got %+v (open %t), want version %d", order, open, version)
		}
		return order
	case <-time.After(callLimit):
		r.Fatalf("not told of version %d within %s", version, callLimit)
	}
	return pipeline.Order{}
}

// subscribed waits until the hubs listen to so many connections' channels.
func (r *rig) subscribed(n int64) {
	r.Helper()
	testkit.Eventually(r.T, callLimit, "the subscription", func() bool {
		got, err := r.rdb.PubSubNumSub(r.ctx(), r.keys.News(3)).Result()
		return err == nil && got[r.keys.News(3)] == n
	})
}

// never is a sweep that no test lives to see: what is told then is told by news, or by the look after a subscription.
var never = pipeline.HubConfig{SweepEvery: time.Hour}
