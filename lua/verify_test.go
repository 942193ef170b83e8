package lua_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lua"
)

func (f *fixture) look() lua.Trust {
	f.Helper()
	verified, err := lua.ReadTrust(f.ctx, f.rdb, f.verify())
	if err != nil || len(verified.Server) != 81 {
		f.Fatalf("look: got %+v, %v", verified, err)
	}
	return verified.Trust
}

type verifyStep func(ctx context.Context, rdb redis.Scripter, keys lua.VerifyKeys, token string) (lua.Trust, error)

func (f *fixture) step(step verifyStep, token string, want lua.Trust) {
	f.Helper()
	if got, err := step(f.ctx, f.rdb, f.verify(), token); err != nil || got != want {
		f.Fatalf("step of %s: got %q, %v, want %q", token, got, err, want)
	}
}

func TestAVerificationFromBeginningToEnd(t *testing.T) {
	f := newFixture(t)
	same(t, "after the fixture", f.look(), lua.Trusted)
	for range 2 { // every step may be sent twice
		f.step(lua.BeginVerify, "one", lua.Verifying)
	}
	same(t, "begun", f.look(), lua.Untrusted)
	for range 2 {
		f.step(lua.Reopen, "one", lua.Reopening)
	}
	same(t, "half open", f.look(), lua.Reopening)
	for range 2 {
		f.step(lua.FinishVerify, "one", lua.Trusted)
	}
	same(t, "finished", f.look(), lua.Trusted)
}

func TestTheLaterVerificationWins(t *testing.T) {
	f := newFixture(t)
	f.step(lua.BeginVerify, "one", lua.Verifying)
	f.step(lua.BeginVerify, "two", lua.Verifying)
	for _, step := range []verifyStep{lua.Reopen, lua.FinishVerify} {
		f.step(step, "one", lua.Overtaken)
		same(t, "after the overtaken one", f.look(), lua.Untrusted)
	}
	f.step(lua.FinishVerify, "two", lua.Trusted)
}

// A verification that stood still since it had reopened a partition does not finish the one that followed it: the
// accepts of that one may not be there yet.
func TestAVerificationThatStoodStillOpensNothing(t *testing.T) {
	f := newFixture(t)
	f.step(lua.BeginVerify, "one", lua.Verifying)
	f.step(lua.Reopen, "one", lua.Reopening)
	f.do("DEL", f.saleKeys.Trusted) // a flush does not change the server
	f.step(lua.BeginVerify, "two", lua.Verifying)
	f.step(lua.Reopen, "two", lua.Reopening)
	f.step(lua.FinishVerify, "one", lua.Overtaken)
	f.step(lua.Reopen, "three", lua.Reopening) // it goes on where two died
	f.step(lua.FinishVerify, "two", lua.Overtaken)
	f.step(lua.FinishVerify, "three", lua.Trusted)
}

// What was verified under another process, was never verified, or is nonsense, counts for nothing.
func TestNothingElseIsTrusted(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	runID, zeros := f.do("GET", f.saleKeys.Trusted).(string), strings.Repeat("0", 40)
	for _, value := range []string{
		"", zeros, runID[:80], runID + "0", runID[:40], runID[:41] + zeros, zeros + runID[40:],
		"verifying:" + runID + ":one", "reopening:" + zeros + ":one", "reopening:" + runID, "trusted",
	} {
		f.do("SET", f.saleKeys.Trusted, value)
		same(t, "look at "+value, f.look(), lua.Untrusted)
		f.refusedEverywhere(value, true)
		f.step(lua.FinishVerify, "another", lua.Overtaken)
	}
	f.do("DEL", f.saleKeys.Trusted)
	same(t, "look at nothing", f.look(), lua.Untrusted)
	f.refusedEverywhere("nothing", true)

	// Half open: lost accepts only.
	f.do("SET", f.saleKeys.Trusted, "reopening:"+runID+":one")
	f.refusedEverywhere("half open", false)
	resubmitted, err := lua.Resubmit(f.ctx, f.rdb, f.saleKeys, saleID, []lua.AdmitRequest{request(1, "ann")})
	if err != nil || resubmitted.Outcomes[0].Code != lua.AdmitAccepted {
		t.Errorf("a lost accept: got %+v, %v", resubmitted, err)
	}
}

// refusedEverywhere tries all that must not be done without trust, and sees that nothing changes.
func (f *fixture) refusedEverywhere(what string, resubmitToo bool) {
	f.Helper()
	f.unchanged(what, func() {
		same(f, what+": admit", codes(f.mustAdmit(request(1, "ann"))), []lua.AdmitCode{lua.AdmitUntrusted})
		if resubmitToo {
			reply, err := lua.Resubmit(f.ctx, f.rdb, f.saleKeys, saleID, []lua.AdmitRequest{request(1, "ann")})
			if err != nil || reply.Outcomes[0].Code != lua.AdmitUntrusted {
				f.Fatalf("%s: resubmit: got %+v, %v", what, reply, err)
			}
		}
		if _, err := release(f, "ann", orderID(1)); !errors.Is(err, lua.ErrUntrusted) {
			f.Fatalf("%s: release: got %v", what, err)
		}
		if got, err := lua.Load(f.ctx, f.rdb, f.saleKeys.Sale+"-other", f.saleKeys.Trusted, f.openSale(1)); err != nil ||
			got != lua.LoadUntrusted {
			f.Fatalf("%s: load: got %q, %v", what, got, err)
		}
	})
}

// A restart changes nothing of the keys, and yet the state counts as unverified: it is another process.
func TestARestartedServerIsNotTrusted(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	f := fixtureOn(t, testkit.Client(t, server.URL()), "restart")
	f.load(f.openSale(5))
	f.step(lua.BeginVerify, "before", lua.Verifying)
	if err := server.Restart(f.ctx); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, callLimit, "Redis answers", func() bool { return f.rdb.Ping(f.ctx).Err() == nil })
	f.step(lua.FinishVerify, "before", lua.Overtaken) // what it compared was in another process
	same(t, "after a restart in the middle", f.look(), lua.Untrusted)
	f.trust()
	if err := server.Restart(f.ctx); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, callLimit, "Redis answers", func() bool { return f.rdb.Ping(f.ctx).Err() == nil })
	same(t, "after a restart", f.look(), lua.Untrusted)
	f.refusedEverywhere("restarted", true)
}

// An accept that was made in time is accepted again whatever the state of the sale, as long as there are units, and no
// more.
func TestResubmittedAcceptsNeedUnitsOnly(t *testing.T) {
	f := newFixture(t)
	sale := f.openSale(5)
	sale.State, sale.MaxQuantity, sale.ClosesMS = "closed", 1, f.nowMS()-1
	f.load(sale)
	big, rest, more := request(1, "ann"), request(2, "bob"), request(3, "cy")
	big.Quantity, rest.Quantity, more.Quantity = 4, 1, 1
	second := request(4, "ann")
	reqs := []lua.AdmitRequest{big, rest, more, second}
	for range 2 {
		reply, err := lua.Resubmit(f.ctx, f.rdb, f.saleKeys, saleID, reqs)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "codes", codes(reply), []lua.AdmitCode{
			lua.AdmitAccepted, lua.AdmitAccepted, lua.AdmitSoldOut,
			lua.AdmitAlreadyOrdered,
		})
	}
	same(t, "events", len(f.state().Events), 2)
}

func (f *fixture) installKeys() lua.InstallKeys {
	return lua.InstallKeys{
		Trusted: f.saleKeys.Trusted, Sale: f.saleKeys.Sale, Buyers: f.saleKeys.Buyers, Staged: f.layout.Staged(partition,
			saleID, "one"),
		Waitlist: f.saleKeys.Waitlist, Waiting: f.saleKeys.Waiting,
		StagedWaitlist: f.layout.StagedWaitlist(partition, saleID, "one"), StagedWaiting: f.layout.StagedWaiting(partition,
			saleID, "one"),
		Ended: f.saleKeys.Ended, StagedEnded: f.layout.Staged(partition, saleID, "one") + ":ended",
	}
}

func TestInstallReplacesASaleWhole(t *testing.T) {
	f := newFixture(t)
	old := f.load(f.openSale(5))
	f.mustAdmit(request(1, "ann"), request(2, "bob"))
	fields := old
	fields.Stock, fields.Total, fields.Version = -3, 7, 4
	counters := lua.Counters{Accepted: 9, Released: 2}
	slot := slotText(slotOf(request(3, "cy"), 77, 9))
	install := func(slots int, want lua.InstallCode) {
		t.Helper()
		if got, err := lua.Install(f.ctx, f.rdb, f.installKeys(), "one",
			lua.InstallState{Fields: fields, Counters: counters, Staged: lua.Staged{Slots: slots}}); err != nil || got != want {
			t.Fatalf("install: got %q, %v, want %q", got, err, want)
		}
	}
	f.do("HSET", f.installKeys().Staged, "cy", slot)
	f.do("PEXPIRE", f.installKeys().Staged, 60_000)
	f.unchanged("without the partition", func() { install(1, lua.InstallOvertaken) })
	f.step(lua.BeginVerify, "two", lua.Verifying)
	f.unchanged("another's partition", func() { install(1, lua.InstallOvertaken) })
	f.step(lua.BeginVerify, "one", lua.Verifying)
	f.unchanged("other slots", func() {
		install(0, lua.InstallIncomplete)
		install(2, lua.InstallIncomplete)
	})

	install(1, lua.InstallInstalled)
	want := saleHash(fields, 9, 2)
	same(t, "sale", f.hash(f.saleKeys.Sale), want)
	same(t, "buyers", f.hash(f.saleKeys.Buyers), map[string]string{"cy": slot})
	same(t, "time to live", f.do("PTTL", f.saleKeys.Buyers), any(int64(-1)))
	install(1, lua.InstallIncomplete) // a lost reply: the staged slots are used up
	same(t, "sale after that", f.hash(f.saleKeys.Sale), want)

	install(0, lua.InstallInstalled)
	same(t, "buyers left", len(f.hash(f.saleKeys.Buyers)), 0)
}

func TestVerifyRefusesBadArguments(t *testing.T) {
	f := newFixture(t)
	f.unchanged("bad arguments", func() {
		for _, token := range []string{"", "-", "a b"} {
			if _, err := lua.BeginVerify(f.ctx, f.rdb, f.verify(), token); err == nil {
				t.Errorf("token %q is accepted", token)
			}
		}
		f.badCall("verify.lua", []string{f.saleKeys.Trusted, f.verify().Installation}, "jump", "one", "ours")
		bad := f.openSale(1)
		bad.State = "open"
		if _, err := lua.Install(f.ctx, f.rdb, f.installKeys(), "one",
			lua.InstallState{Fields: bad, Counters: lua.Counters{}, Staged: lua.Staged{}}); err == nil {
			t.Error("an unknown state is accepted")
		}
		f.badCall("install.lua", []string{"a", "b", "c", "d"}, "one")
		f.badCall("admit.lua", []string{"a", "b", "c", "d"}, saleID, "maybe", orderID(1), 1, "ann", 1, "-", "-", "")
	})
	f.spoilt(f.saleKeys.Trusted, func() error { _, err := lua.ReadTrust(f.ctx, f.rdb, f.verify()); return err })
	spoiltOwner := f.verify()
	spoiltOwner.Installation = f.saleKeys.Sale + "-owner"
	f.spoilt(spoiltOwner.Installation, func() error { _, err := lua.ReadTrust(f.ctx, f.rdb, spoiltOwner); return err })
	f.badCall("verify.lua", []string{f.saleKeys.Trusted, f.verify().Installation}, "begin", "one", "-")
}

// TestAForeignVerificationChangesNothing: no step of another installation is taken, and only begin takes a partition
// without owner.
func TestAForeignVerificationChangesNothing(t *testing.T) {
	f := newFixture(t)
	theirs := f.verify()
	theirs.ID = "theirs"
	for _, step := range []verifyStep{lua.BeginVerify, lua.Reopen, lua.FinishVerify} {
		if got, err := step(f.ctx, f.rdb, theirs, "test"); err != nil || got != lua.Foreign {
			t.Errorf("a step of another installation: got %q, %v, want foreign", got, err)
		}
	}
	if got, err := lua.ReadTrust(f.ctx, f.rdb, theirs); err != nil || got.Trust != lua.Foreign {
		t.Errorf("look: got %+v, %v, want foreign", got, err)
	}
	same(t, "its owner's look", f.look(), lua.Trusted)
	f.do("DEL", theirs.Installation)
	same(t, "look at a partition without owner", f.look(), lua.Untrusted)
	for _, step := range []verifyStep{lua.Reopen, lua.FinishVerify} {
		if _, err := step(f.ctx, f.rdb, theirs, "test"); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "owner after steps that begin nothing", f.do("EXISTS", theirs.Installation), any(int64(0)))
	f.trust()
	same(t, "the new owner's look", f.look(), lua.Trusted)
}

// A server that another one has replaced still trusts itself; those who know better get nothing from it.
func TestAReplacedServerAcceptsNothing(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	verified := f.verify()
	verified.Verified = 7
	for _, step := range []verifyStep{lua.BeginVerify, lua.Reopen, lua.FinishVerify} {
		if _, err := step(f.ctx, f.rdb, verified, "one"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := lua.ReadTrust(f.ctx, f.rdb, f.verify()); err != nil || got.Generation != 7 {
		t.Fatalf("look: got %+v, %v, want generation 7", got, err)
	}
	f.saleKeys.Fence = 8
	f.refusedEverywhereBy(8)
	f.saleKeys.Fence = 7
	same(t, "by those who know of no other", codes(f.mustAdmit(request(1, "ann"))), []lua.AdmitCode{lua.AdmitAccepted})

	// Nor is it taken over from a verifier that died here before the other server was verified.
	f.do("SET", f.saleKeys.Trusted, "reopening:"+f.do("GET", f.saleKeys.Trusted).(string)+":one")
	verified.Verified = 8
	if got, err := lua.Reopen(f.ctx, f.rdb, verified, "two"); err != nil || got != lua.Overtaken {
		t.Errorf("taken over: got %q, %v, want overtaken", got, err)
	}
	verified.Verified = 7
	if got, err := lua.Reopen(f.ctx, f.rdb, verified, "two"); err != nil || got != lua.Reopening {
		t.Errorf("taken over: got %q, %v, want reopening", got, err)
	}
}

// refusedEverywhereBy sees that nothing is accepted from those who know of a later generation, and that nothing
// changes.
func (f *fixture) refusedEverywhereBy(fence int64) {
	f.Helper()
	f.unchanged(fmt.Sprint("generation ", fence), func() {
		same(f, "admit", codes(f.mustAdmit(request(1, "ann"))), []lua.AdmitCode{lua.AdmitUntrusted})
		reply, err := lua.Resubmit(f.ctx, f.rdb, f.saleKeys, saleID, []lua.AdmitRequest{request(1, "ann")})
		if err != nil || reply.Outcomes[0].Code != lua.AdmitUntrusted {
			f.Fatalf("resubmit: got %+v, %v", reply, err)
		}
	})
}
