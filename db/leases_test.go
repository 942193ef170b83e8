package db_test

import (
	"context"
	"testing"
	"time"

	"sluice/db"
	"sluice/internal/faultnet"
	"sluice/internal/testkit"
)

// A holder whose machine vanished, or that can't reach Postgres any more, is replaced within seconds, and its own work
// ends before that.
func TestALeaseOutlivesItsHolderByLittle(t *testing.T) {
	f := setup(t)
	proxy, err := faultnet.Listen(f.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	store, err := db.Open(f.ctx(), proxy.URL(), db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	entered, ended, first := make(chan struct{}), make(chan time.Time, 1), make(chan error, 1)
	go func() {
		_, err := store.RunExclusively(f.ctx(), "a", func(ctx context.Context) error {
			close(entered)
			<-ctx.Done()
			ended <- time.Now()
			return ctx.Err()
		})
		first <- err
	}()
	<-entered
	time.Sleep(2 * db.LeaseTTL) // it is renewed as long as all is well
	ran, err := f.store.RunExclusively(f.ctx(), "a", func(context.Context) error { return nil })
	if ran || err != nil {
		t.Fatalf("beside a holder that lives: got %t, %v", ran, err)
	}
	proxy.Freeze()
	frozen := time.Now()
	testkit.Eventually(t, time.Minute, "another one is elected", func() bool {
		ran, err = f.store.RunExclusively(f.ctx(), "a", func(context.Context) error { return nil })
		return ran && err == nil
	})
	taken := time.Now()
	if over := <-ended; over.After(taken) {
		t.Errorf("the first one worked until %s after the second had begun", over.Sub(taken))
	}
	t.Logf("replaced after %s", taken.Sub(frozen).Round(time.Millisecond))
	proxy.Thaw()
	if err := <-first; err == nil {
		t.Error("the first one: got no error, want one about its lease")
	}
}
