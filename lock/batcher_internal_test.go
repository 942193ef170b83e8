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
	const crowd = 10 * maxBatchCalls
	var g batcher
	g.inFlight = minTrips // and they hang
	calls := make([]pendingCall, crowd)
	for i := range calls {
		calls[i].ctx = t.Context()
		if g.admit(&calls[i]) {
			t.Fatal("there was a turn")
		}
		calls[i].arrived = time.Now().Add(-maxTurnWait)
	}
	g.sendOverdue()
	if g.inFlight != minTrips+crowd/maxBatchCalls || len(g.pending) != 0 {
		t.Errorf("%d round trips under way and %d calls that wait, want all of them to go", g.inFlight, len(g.pending))
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
	c.batcher.fastest = maxTurnWait // the server was far
	for range 3 {
		if _, err := c.Mutex("a").TryLock(context.Background()); err == nil {
			t.Fatal("a lock without a server")
		}
	}
	if c.batcher.fastest != maxTurnWait || c.batcher.inFlight != 0 {
		t.Errorf("a round trip takes %s, %d under way, want %s and none", c.batcher.fastest, c.batcher.inFlight, maxTurnWait)
	}
}
