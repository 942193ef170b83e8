package lua_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

func adjust(f *fixture, sale lua.SaleFields) (lua.AdjustCode, error) {
	got, _, err := lua.Adjust(f.ctx, f.rdb, f.saleKeys, saleID, plenty, sale)
	return got, err
}

func release(f *fixture, user, order string) ([]bool, error) {
	got, _, err := lua.Release(f.ctx, f.rdb, f.saleKeys, saleID, plenty, []lua.ReleaseItem{{UserID: user, OrderID: order}})
	return got, err
}

// source is the text of a script.
func (f *fixture) source(file string) string {
	f.Helper()
	var source strings.Builder
	for _, part := range []string{"handover.lua", "group.lua", "moves.lua", file} { // a head does nothing to scripts that don't call it
		text, err := os.ReadFile(part)
		if err != nil {
			f.Fatal(err)
		}
		source.Write(text)
	}
	return source.String()
}

// badCall runs a script with arguments that its Go call would never send, and expects it to refuse them.
func (f *fixture) badCall(file string, keys []string, args ...any) {
	f.Helper()
	if err := f.rdb.Eval(f.ctx, f.source(file), keys, args...).Err(); !redis.HasErrorPrefix(err, "BADCALL") {
		f.Errorf("%s with %q: got error %v, want BADCALL", file, args, err)
	}
}

// scripter answers every script with one reply, and keeps what it was sent.
type scripter struct {
	redis.Scripter
	reply any
	keys  []string
	args  []any
}

func (s *scripter) EvalSha(_ context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	s.keys, s.args = keys, args
	return redis.NewCmdResult(s.reply, nil)
}

// A server that has forgotten its scripts (restart, failover, SCRIPT FLUSH) is sent their text, and no caller notices.
func TestEveryCallSurvivesForgottenScripts(t *testing.T) {
	f := newFixture(t)
	sale := f.openSale(5)
	forget := func() { f.do("SCRIPT", "FLUSH") }

	forget()
	f.load(sale)
	sale.Version, sale.Total = 2, 6
	forget()
	if got, err := adjust(f, sale); err != nil || got != lua.AdjustAdjusted {
		t.Errorf("adjust: got %q, %v", got, err)
	}
	f.do("XGROUP", "CREATE", f.saleKeys.Orders, group, "0", "MKSTREAM")
	forget()
	same(t, "admit", codes(f.mustAdmit(request(1, "ann"))), []lua.AdmitCode{lua.AdmitAccepted})
	entry := f.read("w1", 1)[0]
	forget()
	if got, err := lua.Settle(f.ctx, f.rdb, f.saleKeys.Orders, group, "",
		[]lua.SettleItem{{EntryID: entry}}); err != nil || got != 1 {
		t.Errorf("settle: got %d, %v", got, err)
	}
	forget()
	if got, err := release(f, "ann", orderID(1)); err != nil || !got[0] {
		t.Errorf("release: got %v, %v", got, err)
	}
	forget()
	if got, err := lua.Reap(f.ctx, f.rdb, f.saleKeys.Orders, f.layout.Worker(partition, "w1"), group, "w1"); err != nil ||
		got != lua.ReapRemoved {
		t.Errorf("reap: got %q, %v", got, err)
	}
	forget()
	f.mustLease(1)
}

// Replies that no script of this build gives are errors, never guesses.
func TestUnknownRepliesAreErrors(t *testing.T) {
	t.Parallel()
	header := func(outcome ...any) []any {
		return append([]any{int64(1), int64(2), int64(3), int64(4), int64(5)}, outcome...)
	}
	slot := orderID(1) + " 1 2 3 4 - -"
	for _, reply := range []any{
		nil, "", "OK", "unheard-of", int64(7),
		[]any{},
		[]any{"unheard-of"},
		[]any{int64(1)},
		[]any{nil},
		header("unheard-of", ""), header("accepted", ""), header("accepted", "x"), header("accepted", nil), header("accepted",
			int64(1)),
		header(int64(1), slot), header("sold-out", slot), header("replayed",
			slot+" x"), header("accepted"), header("accepted", slot, "accepted", slot),
		[]any{"1", "2", "3", "4", "5", "accepted", slot},
	} {
		s := &scripter{reply: reply}
		calls := callsOf(s)
		for name, call := range calls {
			if name == "settle.lua" && reply == any(int64(7)) {
				continue // the one number that is an answer
			}
			if err := call(1); err == nil {
				t.Errorf("%s: reply %v: got no error", name, reply)
			}
		}
	}
}

// callsOf are the calls of this package, each with a batch of n where it takes one.
func callsOf(s redis.Scripter) map[string]func(n int) error {
	ctx := context.Background()
	sale := lua.SaleFields{Stock: 1, Total: 1, OpensMS: 1, ClosesMS: 2, MaxQuantity: 1, State: "active", Version: 1}
	keys := lua.SaleKeys{Sale: "a", Buyers: "b", Trusted: "c", Orders: "d", Waitlist: "e", Waiting: "f", Ended: "g"}
	return map[string]func(int) error{
		"join.lua": func(int) error {
			_, err := lua.Join(ctx, s, lua.SaleKeys{Sale: "a", Buyers: "b", Trusted: "c", Waitlist: "d", Waiting: "e"},
				request(1, "ann"))
			return err
		},
		"leave.lua": func(int) error {
			_, _, _, err := lua.Leave(ctx, s, keys, saleID, plenty, lua.ReleaseItem{UserID: "ann", OrderID: orderID(1)})
			return err
		},
		"admit.lua": func(n int) error {
			var reqs []lua.AdmitRequest
			for i := range n {
				reqs = append(reqs, request(i+1, "ann"))
			}
			keys := lua.SaleKeys{Sale: "a", Buyers: "b", Orders: "c", Trusted: "d", Generation: "e", Ended: "f"}
			_, err := lua.Admit(ctx, s, keys, saleID, plenty, reqs)
			return err
		},
		"refusal.lua": func(n int) error {
			_, err := lua.ReadRefusals(ctx, s, lua.RefusalKeys{Trusted: "a", Generation: "b", Sales: make([]string, n)})
			return err
		},
		"settle.lua": func(n int) error {
			var items []lua.SettleItem
			for i := range n {
				items = append(items, lua.SettleItem{EntryID: "1-1", LockKey: "lock", SaleKey: fmt.Sprint("sale", i), Stored: 1})
			}
			_, err := lua.Settle(ctx, s, "stream", group, "token", items)
			return err
		},
		"release.lua": func(n int) error {
			var items []lua.ReleaseItem
			for range n {
				items = append(items, lua.ReleaseItem{UserID: "ann", OrderID: orderID(1)})
			}
			_, _, err := lua.Release(ctx, s, keys, saleID, plenty, items)
			return err
		},
		"claim.lua": func(n int) error {
			_, _, err := lua.Claim(ctx, s, lua.Consumer{Stream: "stream", Group: group, Name: "w1"}, time.Second,
				slices.Repeat([]lua.PendingEntry{{ID: "1-1"}}, n))
			return err
		},
		"load.lua": func(int) error { _, err := lua.Load(ctx, s, "a", "b", sale); return err },
		"verify.lua": func(int) error {
			keys := lua.VerifyKeys{Trusted: "a", Installation: "b", Generation: "c", ID: "id"}
			_, err := lua.BeginVerify(ctx, s, keys, "token")
			return err
		},
		"install.lua": func(int) error {
			_, err := lua.Install(ctx, s, lua.InstallKeys{
				Trusted: "a", Sale: "b", Buyers: "c", Staged: "d",
				Waitlist: "e", Waiting: "f", StagedWaitlist: "g", StagedWaiting: "h", Ended: "i", StagedEnded: "j",
			}, "token",
				lua.InstallState{Fields: sale, Staged: lua.Staged{Slots: 1}})
			return err
		},
		"adjust.lua": func(int) error { _, _, err := lua.Adjust(ctx, s, keys, saleID, plenty, sale); return err },
		"take.lua": func(int) error {
			keys := lua.SaleKeys{Sale: "a", Trusted: "b", Generation: "c"}
			_, _, err := lua.Take(ctx, s, keys, lua.Move{Number: 1, Units: 1})
			return err
		},
		"give.lua": func(int) error {
			keys := keys
			keys.Generation = "h"
			_, _, err := lua.Give(ctx, s, keys, saleID, plenty, lua.Move{Number: 1, Units: 1})
			return err
		},
		"retire.lua": func(int) error { _, err := lua.Retire(ctx, s, keys, 1, ""); return err },
		"lease.lua":  func(int) error { _, _, err := lua.Lease(ctx, s, "a", "b", 4096, time.Minute); return err },
		"passed.lua": func(int) error { _, _, err := lua.Passed(ctx, s, "a", "b", 1); return err },
		"reap.lua":   func(int) error { _, err := lua.Reap(ctx, s, "a", "b", group, "w1"); return err },
	}
}
