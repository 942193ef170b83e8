package lock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lock"
)

// TestARefusedRoundTripIsEachCallsError: where Redis refuses the connection of a shared round trip, no call of it goes
// on with a reply that never came. The client tells the pipeline only.
func TestARefusedRoundTripIsEachCallsError(t *testing.T) {
	t.Parallel()
	options := must(redis.ParseURL(testkit.PrivateRedis(t).URL()))(t)
	options.Username, options.Password, options.MaxRetries = "nobody", "wrong", -1
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	l := lock.New(rdb)
	t.Cleanup(func() { _ = l.Close() })
	calls := make([]*redis.Cmd, 3)
	for i := range calls {
		calls[i] = redis.NewCmd(t.Context(), "ping")
	}
	lock.SendTogether(l, calls)
	for i, call := range calls {
		if err := call.Err(); !redis.HasErrorPrefix(err, "WRONGPASS") {
			t.Errorf("call %d: got %v, %v, want WRONGPASS", i, call.Val(), err)
		}
	}
}
