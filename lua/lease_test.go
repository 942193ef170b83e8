package lua_test

import (
	"strings"
	"testing"
	"time"

	"sluice/lua"
)

func (f *fixture) leaseKeys() (counter, giver string) {
	return f.layout.OrderCounter("today"), f.layout.OrderCounter("giver")
}

func (f *fixture) mustLease(block int64) int64 {
	f.Helper()
	counter, giver := f.leaseKeys()
	first, err := lua.Lease(f.ctx, f.rdb, counter, giver, block, time.Minute)
	if err != nil {
		f.Fatal(err)
	}
	return first
}

// Blocks follow each other while one server process gives them, and both keys go by themselves.
func TestLeasesFollowEachOther(t *testing.T) {
	f := newFixture(t)
	first := f.mustLease(10)
	same(t, "second block", f.mustLease(5), first+10)
	same(t, "third block", f.mustLease(1), first+15)
	counter, giver := f.leaseKeys()
	for _, key := range []string{counter, giver} {
		if ttl, err := f.rdb.PTTL(f.ctx, key).Result(); err != nil || ttl <= 0 || ttl > time.Minute {
			t.Errorf("%s expires in %s, %v, want a minute at most", key, ttl, err)
		}
	}
}

// A process that did not give the last block knows nothing of what was given: it goes on elsewhere.
func TestALeaseAfterALossBeginsElsewhere(t *testing.T) {
	f := newFixture(t)
	counter, giver := f.leaseKeys()
	for _, lose := range []struct {
		what string
		do   func()
	}{
		{"the counter", func() { f.do("DEL", counter) }},
		{"who gave", func() { f.do("DEL", giver) }},
		{"both", func() { f.do("DEL", counter, giver) }},
		{"to another process", func() { f.do("SET", giver, strings.Repeat("a", 40)) }},
	} {
		given := f.mustLease(4096)
		lose.do()
		if got := f.mustLease(4096); got >= given-4096 && got <= given+1<<20 {
			t.Errorf("%s: a block at %d after one at %d, want it elsewhere", lose.what, got, given)
		}
	}
}

func TestLeaseRefusesBadCalls(t *testing.T) {
	f := newFixture(t)
	counter, giver := f.leaseKeys()
	f.unchanged("bad calls", func() {
		for _, args := range [][]any{{}, {"x", 1, 1}, {1, 0, 1}, {1, 1, 0}, {-1, 1, 1}} {
			if err := f.run("lease.lua", []string{counter, giver}, args...); err == nil || !strings.Contains(err.Error(), "BADCALL") {
				t.Errorf("%v: got %v, want BADCALL", args, err)
			}
		}
		if _, err := lua.Lease(f.ctx, f.rdb, counter, giver, 0, time.Minute); err == nil {
			t.Error("a block of nothing was leased")
		}
	})
}
