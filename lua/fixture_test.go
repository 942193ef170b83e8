package lua_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
)

const (
	saleID    = "drop-1"
	group     = pipeline.Group
	partition = pipeline.Partition(3)
	plenty    = 1 << 40 // events: no test gets there

	callLimit = 2 * time.Minute // bounds the calls of one test, on a busy machine and under the race detector
)

// tester is what a test and a property under test have in common.
type tester interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// fixture is one sale on one partition under a prefix of its own.
type fixture struct {
	tester
	ctx      context.Context
	rdb      *redis.Client
	saleKeys lua.SaleKeys
	layout   pipeline.Keys

	maxEvents int64 // that mustAdmit allows in the stream
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return fixtureOn(t, testkit.Redis(t), testkit.Prefix(t))
}

func fixtureOn(t *testing.T, rdb *redis.Client, prefix string) *fixture {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	t.Cleanup(cancel)
	layout := pipeline.Keys{Prefix: prefix}
	f := &fixture{tester: t, ctx: ctx, rdb: rdb, saleKeys: saleKeysOf(layout), layout: layout, maxEvents: plenty}
	f.trust()
	return f
}

// trust marks the server as verified.
func (f *fixture) trust() {
	f.Helper()
	for _, step := range []verifyStep{lua.BeginVerify, lua.FinishVerify} {
		if _, err := step(f.ctx, f.rdb, f.verify(), "test"); err != nil {
			f.Fatal(err)
		}
	}
}

// verify are the keys of the partition, for its own installation.
func (f *fixture) verify() lua.VerifyKeys { return verifyKeys(f.layout) }

func verifyKeys(k pipeline.Keys) lua.VerifyKeys {
	return lua.VerifyKeys{
		Trusted: k.Trusted(partition), Installation: k.Installation(partition), Generation: k.Generation(partition),
		ID: "ours",
	}
}

func saleKeysOf(k pipeline.Keys) lua.SaleKeys {
	return lua.SaleKeys{
		Sale: k.Sale(partition, saleID), Buyers: k.Buyers(partition, saleID), Orders: k.Orders(partition),
		Trusted: k.Trusted(partition), Waitlist: k.Waitlist(partition, saleID), Waiting: k.Waiting(partition, saleID),
		Generation: k.Generation(partition), Ended: k.ForSale(partition, saleID).Ended,
	}
}

// do sends a plain command: what a test sets up or spoils by hand.
func (f *fixture) do(args ...any) any {
	f.Helper()
	reply, err := f.rdb.Do(f.ctx, args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		f.Fatalf("%v: %v", args, err)
	}
	return reply
}

// nowMS is the server's clock.
func (f *fixture) nowMS() int64 {
	f.Helper()
	now, err := f.rdb.Time(f.ctx).Result()
	if err != nil {
		f.Fatal(err)
	}
	return now.UnixMilli()
}

// openSale is open for an hour on both sides of any test.
func (f *fixture) openSale(stock int64) lua.SaleFields {
	now := f.nowMS()
	return lua.SaleFields{
		Stock: stock, Total: stock, OpensMS: now - 3_600_000, ClosesMS: now + 3_600_000,
		MaxQuantity: 3, State: "active", Version: 1, Waitlist: 1000,
	}
}

func (f *fixture) load(s lua.SaleFields) lua.SaleFields {
	f.Helper()
	if got, err := lua.Load(f.ctx, f.rdb, f.saleKeys.Sale, f.saleKeys.Trusted, s); err != nil || got != lua.LoadLoaded {
		f.Fatalf("load: got %q, %v", got, err)
	}
	return s
}

func (f *fixture) mustAdmit(reqs ...lua.AdmitRequest) lua.AdmitReply {
	f.Helper()
	reply, err := lua.Admit(f.ctx, f.rdb, f.saleKeys, saleID, f.maxEvents, reqs)
	if err != nil {
		f.Fatal(err)
	}
	return reply
}

func codes(reply lua.AdmitReply) []lua.AdmitCode {
	var cs []lua.AdmitCode
	for _, o := range reply.Outcomes {
		cs = append(cs, o.Code)
	}
	return cs
}

// request asks for one unit, with an idempotency key. The order id and number follow from n.
func request(n int, user string) lua.AdmitRequest {
	return lua.AdmitRequest{
		OrderID: orderID(n), Number: int64(n), UserID: user, Quantity: 1,
		KeyHash: fmt.Sprintf("key%d", n), PayloadHash: "payload1",
	}
}

func orderID(n int) string { return fmt.Sprintf("01890000-0000-7000-8000-%012d", n) }

// state is everything that the scripts may change, as Redis has it.
type state struct {
	Sale, Buyers map[string]string
	Events       []map[string]string // fields of the stream's entries, in order
	Pending      []string            // "event index consumer" for each pending entry
	Consumers    []string
	Others       map[string]string // other strings under the prefix: locks, heartbeats
	Waitlist     []string          // users, those with the lowest tickets first
	Waiting      map[string]string // nil where no buyer waits
	Ended        map[string]string // nil where no order with a key has ended
}

// state reads it all, in two round trips. A key of another type reads as empty: tests that spoil a key compare it by
// themselves. So does the group of a stream that has none.
func (f *fixture) state() state {
	f.Helper()
	pipe := f.rdb.Pipeline()
	sale, buyers := pipe.HGetAll(f.ctx, f.saleKeys.Sale), pipe.HGetAll(f.ctx, f.saleKeys.Buyers)
	entries := pipe.XRange(f.ctx, f.saleKeys.Orders, "-", "+")
	consumers := pipe.XInfoConsumers(f.ctx, f.saleKeys.Orders, group)
	pending := pipe.XPendingExt(f.ctx, &redis.XPendingExtArgs{
		Stream: f.saleKeys.Orders, Group: group, Start: "-", End: "+", Count: 10_000,
	})
	keys := pipe.Keys(f.ctx, f.layout.Prefix+":*")
	waitlist, waiting := pipe.ZRange(f.ctx, f.saleKeys.Waitlist, 0, -1), pipe.HGetAll(f.ctx, f.saleKeys.Waiting)
	ended := pipe.HGetAll(f.ctx, f.saleKeys.Ended)
	var refused redis.Error
	if _, err := pipe.Exec(f.ctx); err != nil && !errors.As(err, &refused) {
		f.Fatal(err)
	}
	s := state{Sale: sale.Val(), Buyers: buyers.Val()}
	index := s.addEvents(entries.Val())
	for _, c := range consumers.Val() {
		s.Consumers = append(s.Consumers, c.Name)
	}
	for _, p := range pending.Val() {
		s.Pending = append(s.Pending, fmt.Sprint(index[p.ID], " ", p.Consumer))
	}
	s.Others = f.strings(keys.Val())
	if len(waitlist.Val()) > 0 {
		s.Waitlist = waitlist.Val()
	}
	if len(waiting.Val()) > 0 {
		s.Waiting = waiting.Val()
	}
	if len(ended.Val()) > 0 {
		s.Ended = ended.Val()
	}
	return s
}

func (s *state) addEvents(entries []redis.XMessage) (index map[string]int) {
	index = map[string]int{}
	for i, entry := range entries {
		index[entry.ID] = i
		fields := map[string]string{}
		for name, value := range entry.Values {
			fields[name] = value.(string)
		}
		s.Events = append(s.Events, fields)
	}
	return index
}

// strings are the values of those keys that hold one, by what follows the prefix.
func (f *fixture) strings(keys []string) map[string]string {
	f.Helper()
	found := map[string]string{}
	if len(keys) == 0 {
		return found
	}
	values, err := f.rdb.MGet(f.ctx, keys...).Result()
	if err != nil {
		f.Fatal(err)
	}
	for i, value := range values {
		if text, ok := value.(string); ok && keys[i] != f.saleKeys.Trusted && keys[i] != f.verify().Installation {
			found[strings.TrimPrefix(keys[i], f.layout.Prefix)] = text
		}
	}
	return found
}

func (f *fixture) keys() []string {
	f.Helper()
	var keys []string
	scan := f.rdb.Scan(f.ctx, 0, f.layout.Prefix+":*", 1000).Iterator()
	for scan.Next(f.ctx) {
		// it is the same all the time, or the test is about it
		if scan.Val() != f.saleKeys.Trusted && scan.Val() != f.verify().Installation {
			keys = append(keys, scan.Val())
		}
	}
	if err := scan.Err(); err != nil {
		f.Fatal(err)
	}
	return keys
}

func (f *fixture) hash(key string) map[string]string {
	f.Helper()
	fields, err := f.rdb.HGetAll(f.ctx, key).Result()
	if err != nil {
		f.Fatal(err)
	}
	return fields
}

func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// saleHash is how the sale's hash looks with these fields and counters.
func saleHash(s lua.SaleFields, accepted, released int64) map[string]string {
	return map[string]string{
		"stock": fmt.Sprint(s.Stock), "total": fmt.Sprint(s.Total), "opens_ms": fmt.Sprint(s.OpensMS),
		"closes_ms": fmt.Sprint(s.ClosesMS), "max_quantity": fmt.Sprint(s.MaxQuantity), "state": s.State,
		"version": fmt.Sprint(s.Version), "accepted": fmt.Sprint(accepted), "released": fmt.Sprint(released),
		"waitlist": fmt.Sprint(s.Waitlist), "tickets": "0", "waiting": "0",
	}
}

// slotOf is the slot that an accept leaves, and eventOf the stream entry.
func slotOf(r lua.AdmitRequest, nowMS, sequence int64) lua.Slot {
	return lua.Slot{
		OrderID: r.OrderID, Quantity: r.Quantity, Number: r.Number, AcceptedMS: nowMS, Sequence: sequence,
		KeyHash: r.KeyHash, PayloadHash: r.PayloadHash,
	}
}

func slotText(s lua.Slot) string {
	orDash := func(hash string) string {
		if hash == "" {
			return "-"
		}
		return hash
	}
	return fmt.Sprintf("%s %d %d %d %d %s %s", s.OrderID, s.Quantity, s.Number, s.AcceptedMS, s.Sequence,
		orDash(s.KeyHash), orDash(s.PayloadHash))
}

func eventOf(r lua.AdmitRequest, nowMS, sequence int64) map[string]string {
	event := map[string]string{
		"v": "1", "s": saleID, "k": fmt.Sprint(sequence), "o": r.OrderID, "n": fmt.Sprint(r.Number),
		"u": r.UserID, "q": fmt.Sprint(r.Quantity), "t": fmt.Sprint(nowMS),
	}
	if r.KeyHash != "" {
		event["h"] = r.KeyHash
	}
	if r.TraceParent != "" {
		event["tp"] = r.TraceParent
	}
	return event
}

// same fails the test unless two values are deeply equal.
func same[V any](t tester, what string, got, want V) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// spoilt checks that a call with one key of another type fails with WRONGTYPE and changes nothing at all.
func (f *fixture) spoilt(key string, call func() error) {
	f.Helper()
	was := f.do("DUMP", key)
	f.do("DEL", key)
	f.do("ZADD", key, "1", "not what it should be")
	before := f.dump()
	if err := call(); !isWrongType(err) {
		f.Fatalf("with %s of another type: got error %v, want WRONGTYPE", key, err)
	}
	same(f, "with "+key+" of another type, all keys", f.dump(), before)
	f.do("DEL", key)
	if was != nil {
		f.do("RESTORE", key, 0, was)
	}
}

// dump is every key under the prefix with its serialized value, groups and pending entries included.
func (f *fixture) dump() map[string]string {
	f.Helper()
	all := map[string]string{}
	for _, key := range f.keys() {
		all[key] = f.do("DUMP", key).(string)
	}
	return all
}

// unchanged runs a call twice and checks that neither changes a byte of any key.
func (f *fixture) unchanged(what string, call func()) {
	f.Helper()
	before := f.dump()
	for range 2 {
		call()
		if after := f.dump(); !maps.Equal(after, before) {
			f.Fatalf("%s changed something:\n got %q\nwant %q", what, after, before)
		}
	}
}

// handedOver is the stream entry of an order that was made for a buyer on the waitlist.
func handedOver(r lua.AdmitRequest, nowMS, sequence, ticket int64) map[string]string {
	event := eventOf(r, nowMS, sequence)
	event["w"] = fmt.Sprint(ticket)
	return event
}
