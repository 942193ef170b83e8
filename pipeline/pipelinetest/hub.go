package pipelinetest

import (
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/notification"
)

// RunHub runs a hub until the test ends, or it is stopped.
func (r *Rig) RunHub(c notification.HubConfig) (*notification.Hub, func()) {
	c.Redis, c.Keys, c.Partitions = r.Redis, r.Keys, r.Options.Partitions
	c.Orders, c.Registerer, c.Log = r.Store, r.Registry, r.Logger
	hub := notification.NewHub(c)
	return hub, r.Background(hub.Run)
}

// Watch watches an order until the test ends.
func (r *Rig) Watch(hub *notification.Hub, orderID string) *notification.Watch {
	r.Helper()
	w, err := hub.Watch(r.Sale.ID, orderID, 0)
	if err != nil {
		r.Fatalf("watch: %v", err)
	}
	r.Cleanup(w.Close)
	return w
}

// AwaitVersion waits for a watch's next change and expects a version.
func (r *Rig) AwaitVersion(w *notification.Watch, version int) pipeline.Order {
	r.Helper()
	select {
	case order, open := <-w.Changes():
		if !open || order.Version != version {
			r.Fatalf("change: got %+v (open %t), want version %d", order, open, version)
		}
		return order
	case <-time.After(CallLimit):
		r.Fatalf("no version %d within %s", version, CallLimit)
	}
	return pipeline.Order{}
}

// Subscribed waits until the hubs listen to so many connections' channels.
func (r *Rig) Subscribed(n int64) {
	r.Helper()
	testkit.Eventually(r.T, CallLimit, "the subscription", func() bool {
		got, err := r.Redis.PubSubNumSub(r.Ctx(), r.Keys.Changes(3)).Result()
		return err == nil && got[r.Keys.Changes(3)] == n
	})
}

// Never is a sweep that no test lives to see: what is delivered then is delivered by a message, or by the look after a
// subscription.
var Never = notification.HubConfig{SweepEvery: time.Hour}
