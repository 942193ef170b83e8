package lua_test

import (
	"errors"
	"testing"
	"time"

	"sluice/lua"
)

func (f *fixture) mustPass(atMS int64) (string, int64) {
	f.Helper()
	passed, at, err := lua.Passed(f.ctx, f.rdb, f.saleKeys.Orders, f.saleKeys.Trusted, atMS)
	switch {
	case errors.Is(err, lua.ErrUntrusted):
		return "untrusted", at
	case err != nil:
		f.Fatal(err)
	case passed:
		return "passed", at
	}
	return "waiting", at
}

// An instant has passed once every event that was there then is settled, and not before.
func TestPassedFollowsTheStream(t *testing.T) {
	f := newFixture(t)
	got, _ := f.mustPass(0)
	same(t, "without a stream", got, "passed")
	ids := f.delivered(2)
	got, at := f.mustPass(0)
	same(t, "two events", got, "waiting")
	if now := f.nowMS(); at > now || at < now-time.Minute.Milliseconds() {
		t.Errorf("asked about now, got %d, which is not %d", at, now)
	}
	got, again := f.mustPass(1)
	same(t, "before any event", got, "passed")
	same(t, "the instant", again, int64(1))

	f.mustSettle(lua.SettleItem{EntryID: ids[0]})
	f.unchanged("looking", func() {
		got, again = f.mustPass(at)
		same(t, "one event left", got, "waiting")
		same(t, "the instant", again, at)
	})
	f.mustSettle(lua.SettleItem{EntryID: ids[1]})
	got, _ = f.mustPass(at)
	same(t, "none left", got, "passed")
	f.do("XADD", f.saleKeys.Orders, at+1, "v", "1")
	got, _ = f.mustPass(at)
	same(t, "a later one", got, "passed")
}

// A clock that was set back makes no event look settled: its id is ahead of the clock then.
func TestPassedWithIdsAheadOfTheClock(t *testing.T) {
	f := newFixture(t)
	ahead := f.nowMS() + time.Hour.Milliseconds()
	f.do("XADD", f.saleKeys.Orders, ahead, "v", "1")
	got, at := f.mustPass(0)
	same(t, "got", got, "waiting")
	same(t, "the instant", at, ahead)
}

// A server whose state is not verified proves nothing.
func TestPassedOnlyWhereTrusted(t *testing.T) {
	f := newFixture(t)
	for _, state := range []string{"", "another", "reopening:" + f.do("GET", f.saleKeys.Trusted).(string)} {
		f.do("SET", f.saleKeys.Trusted, state)
		got, _ := f.mustPass(0)
		same(t, state, got, "untrusted")
	}
}

func TestPassedRefusesNonsense(t *testing.T) {
	f := newFixture(t)
	for _, at := range []any{"x", "", -1} {
		f.badCall("passed.lua", []string{f.saleKeys.Orders, f.saleKeys.Trusted}, at)
	}
	f.spoilt(f.saleKeys.Orders, func() error {
		_, _, err := lua.Passed(f.ctx, f.rdb, f.saleKeys.Orders, f.saleKeys.Trusted, 0)
		return err
	})
}
