package faultnet_test

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"

	"sluice/internal/faultnet"
	"sluice/internal/testkit"
)

// watched lets everything pass except one moment of a request that contains a text.
func watched(p *faultnet.Proxy, moment faultnet.Moment, text string) (seen func() []string) {
	var mu sync.Mutex // protects the list
	var moments []string
	p.Watch(func(e faultnet.Exchange) bool {
		mu.Lock()
		defer mu.Unlock()
		meant := bytes.Contains(e.Request, []byte(text))
		if meant {
			moments = append(moments, string(e.Moment))
		}
		return !meant || e.Moment != moment
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(moments)
	}
}

// Of three commands that are sent at once the first is answered; the second is held back, before the server or after
// it; the third was asked for after the second.
func TestAWatchedRequestIsStoppedExactly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		moment  faultnet.Moment
		seen    []string
		carried []string
	}{
		{faultnet.Before, []string{"before"}, []string{"first"}},
		{faultnet.After, []string{"before", "after"}, []string{"first", "second", "third"}},
	} {
		t.Run(string(c.moment), func(t *testing.T) {
			t.Parallel()
			p := newRedisPair(t)
			seen := watched(p.proxy, c.moment, "second")
			ctx := within(t, soon)
			pipe := p.through.Pipeline()
			first, second := pipe.RPush(ctx, p.key, "first"), pipe.RPush(ctx, p.key, "second")
			pipe.RPush(ctx, p.key, "third")
			if _, err := pipe.Exec(ctx); err == nil {
				t.Error("nothing was held back")
			}
			if c.moment == faultnet.After && first.Val() != 1 || second.Val() != 0 {
				t.Errorf("got the replies %d and %d, want none to the second", first.Val(), second.Val())
			}
			testkit.Eventually(t, soon, "what was sent on is carried out", func() bool {
				got, err := p.direct.LRange(ctx, p.key, 0, -1).Result()
				return err == nil && slices.Equal(got, c.carried)
			})
			if got := seen(); !slices.Equal(got, c.seen) {
				t.Errorf("the watcher saw the moments %v, want %v", got, c.seen)
			}
		})
	}
}

// The server's reply is complete when the watcher is called: a statement that is its own transaction is committed.
func TestAWatchedStatement(t *testing.T) {
	t.Parallel()
	for moment, rows := range map[faultnet.Moment]int{faultnet.Before: 0, faultnet.After: 1} {
		t.Run(string(moment), func(t *testing.T) {
			t.Parallel()
			url := testkit.EmptyDatabase(t)
			proxy := listen(t, url)
			watched(proxy, moment, "the one")
			ctx := within(t, soon)
			direct := connect(t, url)
			check(t, errOf(direct.Exec(ctx, "create table notes (text text)")))
			through := connect(t, proxy.URL())
			if _, err := through.Exec(ctx, "insert into notes values ($1)", "the one"); err == nil {
				t.Error("got an answer, want none")
			}
			var n int
			if err := direct.QueryRow(ctx, "select count(*) from notes").Scan(&n); err != nil || n != rows {
				t.Errorf("got %d rows, %v, want %d", n, err, rows)
			}
		})
	}
}

// A watcher that lets everything pass changes nothing, in whatever chunks messages come.
func TestAWatcherChangesNothing(t *testing.T) {
	t.Parallel()
	p := newRedisPair(t)
	var mu sync.Mutex
	calls := map[faultnet.Moment]int{}
	p.proxy.Watch(func(e faultnet.Exchange) bool {
		mu.Lock()
		defer mu.Unlock()
		if bytes.Contains(e.Request, []byte(p.key)) {
			calls[e.Moment]++
		}
		return true
	})
	ctx := within(t, soon)
	p.echoBig(t)
	pipe := p.through.Pipeline()
	for range 100 {
		pipe.Incr(ctx, p.key+":n")
	}
	check(t, errOf(pipe.Exec(ctx)))
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(calls); got != "map[after:102 before:102]" {
		t.Errorf("the watcher was called %s, want 102 times at each moment", got)
	}
}
