package lock

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestAllWhoAreLateGoAtOnce: however many wait for a turn, none waits for longer than slowCall, and not only the first batch.
func TestAllWhoAreLateGoAtOnce(t *testing.T) {
	t.Parallel()
	const crowd = 10 * maxGathered
	var g gatherer
	g.underWay = minTrips // and they hang
	calls := make([]gathered, crowd)
	for i := range calls {
		calls[i].ctx = t.Context()
		if g.enter(&calls[i]) {
			t.Fatal("there was a turn")
		}
		calls[i].came = time.Now().Add(-slowCall)
	}
	g.hurry()
	if g.underWay != minTrips+crowd/maxGathered || len(g.waiting) != 0 {
		t.Errorf("%d round trips under way and %d calls that wait, want all of them to go", g.underWay, len(g.waiting))
	}
	going := 0
	for i := range calls {
		select {
		case turn := <-calls[i].turn:
			going += len(turn.batch)
		default:
		}
	}
	if going != crowd {
		t.Errorf("%d calls go, want %d", going, crowd)
	}
}

// TestWhatFailsTellsNothingOfTheWay: calls that fail quicker than any round trip do not make the client believe that the server is
// near, which would leave few round trips to a crowd whose server is far.
func TestWhatFailsTellsNothingOfTheWay(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: "/no/server/here", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	c := New(rdb)
	t.Cleanup(func() { _ = c.Close() })
	c.calls.quickest = slowCall // the server was far
	for range 3 {
		if _, err := c.Mutex("a").TryLock(context.Background()); err == nil {
			t.Fatal("a lock without a server")
		}
	}
	if c.calls.quickest != slowCall || c.calls.underWay != 0 {
		t.Errorf("a round trip takes %s, %d under way, want %s and none", c.calls.quickest, c.calls.underWay, slowCall)
	}
}
