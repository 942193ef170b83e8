package lua_test

import (
	"strings"
	"testing"
	"time"

	"sluice/lua"
)

func (f *fixture) leaseKeys() (counter, issuer string) {
	return f.layout.OrderCounter("today"), f.layout.OrderCounter("issuer")
}

func (f *fixture) mustLease(block int64) int64 {
	f.Helper()
	counter, issuer := f.leaseKeys()
	first, _, err := lua.Lease(f.ctx, f.rdb, counter, issuer, block, time.Minute)
	if err != nil {
		f.Fatal(err)
	}
	return first
}

// Blocks follow each other while one server process issues them, and both keys expire.
func TestLeasesFollowEachOther(t *testing.T) {
	f := newFixture(t)
	first := f.mustLease(10)
	same(t, "second block", f.mustLease(5), first+10)
	same(t, "third block", f.mustLease(1), first+15)
	counter, issuer := f.leaseKeys()
	for _, key := range []string{counter, issuer} {
		if ttl, err := f.rdb.PTTL(f.ctx, key).Result(); err != nil || ttl <= 0 || ttl > time.Minute {
			t.Errorf("%s expires in %s, %v, want a minute at most", key, ttl, err)
		}
	}
}

// A process that did not issue the last block can't know what was issued: it continues elsewhere.
func TestALeaseAfterALossBeginsElsewhere(t *testing.T) {
	f := newFixture(t)
	counter, issuer := f.leaseKeys()
	for _, lose := range []struct {
		what string
		do   func()
	}{
		{"the counter", func() { f.do("DEL", counter) }},
		{"the issuer", func() { f.do("DEL", issuer) }},
		{"both", func() { f.do("DEL", counter, issuer) }},
		{"to another process", func() { f.do("SET", issuer, strings.Repeat("a", 40)) }},
	} {
		issued := f.mustLease(4096)
		lose.do()
		if got := f.mustLease(4096); got >= issued-4096 && got <= issued+1<<20 {
			t.Errorf("%s: a block at %d after one at %d, want it elsewhere", lose.what, got, issued)
		}
	}
}

func TestLeaseRefusesBadCalls(t *testing.T) {
	f := newFixture(t)
	counter, issuer := f.leaseKeys()
	f.unchanged("bad calls", func() {
		for _, args := range [][]any{{}, {"x", 1, 1}, {1, 0, 1}, {1, 1, 0}, {-1, 1, 1}} {
			f.badCall("lease.lua", []string{counter, issuer}, args...)
		}
		if _, _, err := lua.Lease(f.ctx, f.rdb, counter, issuer, 0, time.Minute); err == nil {
			t.Error("a block of nothing was leased")
		}
	})
}
