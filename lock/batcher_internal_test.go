package lock

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestAllWhoAreLateGoAtOnce: however many calls wait for a turn, none waits for longer than maxTurnWait, not only those
// of the first batch.
func TestAllWhoAreLateGoAtOnce(t *testing.T) {
	t.Parallel()
	const crowd = 10 * maxBatchCalls
	var g batcher
	g.inFlight = minTrips // all of them hang
	calls := make([]pendingCall, crowd)
	for i := range calls {
		calls[i].ctx = t.Context()
		if g.start(&calls[i]) {
			t.Fatal("a call was sent at once")
		}
		calls[i].arrived = time.Now().Add(-maxTurnWait)
	}
	g.sendOverdue()
	if g.inFlight != minTrips+crowd/maxBatchCalls || len(g.pending) != 0 {
		t.Errorf("%d round trips in flight and %d pending calls, want all calls sent", g.inFlight, len(g.pending))
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
		t.Errorf("%d calls are sent, want %d", going, crowd)
	}
}

// TestWhatFailsTellsNothingOfTheWay: calls that fail faster than any round trip do not make the client take the server
// for near, which would leave few round trips to a crowd with a distant server.
func TestWhatFailsTellsNothingOfTheWay(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: "/no/server/here", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	c := New(rdb)
	t.Cleanup(func() { _ = c.Close() })
	c.batcher.fastest = maxTurnWait // a distant server
	for range 3 {
		if _, err := c.Mutex("a").TryLock(context.Background()); err == nil {
			t.Fatal("a lock without a server")
		}
	}
	if c.batcher.fastest != maxTurnWait || c.batcher.inFlight != 0 {
		t.Errorf("a round trip takes %s, %d in flight, want %s and none", c.batcher.fastest, c.batcher.inFlight, maxTurnWait)
	}
}
