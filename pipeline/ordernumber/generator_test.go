package ordernumber_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/ordernumber"
	"sluice/pipeline/pipelinetest"
)

// clock is a host's clock that a test sets.
type clock struct {
	mu  sync.Mutex // protects now
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// midday is the middle of a day, far from its ends.
var midday = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// numbersRig is a Redis with the counters, for several processes that take numbers.
type numbersRig struct {
	*testing.T
	rdb   *redis.Client
	keys  pipeline.Keys
	clock *clock
}

func newNumbersRig(t *testing.T) *numbersRig {
	t.Helper()
	return &numbersRig{t, testkit.Redis(t), pipeline.Keys{Prefix: testkit.Prefix(t)}, &clock{now: midday}}
}

func (r *numbersRig) process() *ordernumber.Generator {
	n := ordernumber.NewGenerator(r.rdb, r.keys)
	n.SetClock(r.clock.read)
	return n
}

// throughProxy returns a process that reaches Redis through a proxy, as all that are made after it.
func (r *numbersRig) throughProxy() (*faultnet.Proxy, *ordernumber.Generator) {
	r.Helper()
	proxy := pipelinetest.Through(r.T, pipelinetest.RedisURL(&pipelinetest.Rig{T: r.T, Redis: r.rdb}))
	r.rdb = testkit.Client(r.T, proxy.URL())
	return proxy, r.process()
}

func (r *numbersRig) take(n *ordernumber.Generator, count int) []int64 {
	r.Helper()
	taken := make([]int64, count)
	ctx, cancel := context.WithTimeout(context.Background(), pipelinetest.CallLimit)
	defer cancel()
	if err := n.Take(ctx, taken); err != nil {
		r.Fatalf("take %d numbers: %v", count, err)
	}
	return taken
}

// counter is the value of midday's counter.
func (r *numbersRig) counter() int64 {
	r.Helper()
	n, err := testkit.Redis(r.T).Get(r.Context(), r.keys.OrderCounter("20261121")).Int64()
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// wantDistinct fails when a number was issued twice.
func wantDistinct(t *testing.T, numbers []int64) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(numbers))
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			t.Fatalf("number %d was issued twice", sorted[i])
		}
	}
}

func TestNumbersNeverRepeat(t *testing.T) {
	t.Parallel()
	r := newNumbersRig(t)
	const processes, callers, takes = 8, 4, 60
	all := make([][]int64, processes*callers)
	sources := make([]*ordernumber.Generator, processes)
	for i := range sources {
		sources[i] = r.process()
	}
	pipelinetest.Together(len(all), func(i int) {
		for n := range takes {
			taken := make([]int64, 1+(i*takes+n)%128)
			if err := sources[i%processes].Take(t.Context(), taken); err != nil {
				t.Error(err)
				return
			}
			all[i] = append(all[i], taken...)
		}
	})
	numbers := slices.Concat(all...)
	if len(numbers) < processes*ordernumber.BlockSize {
		t.Fatalf("%d numbers do not need more than one lease per process", len(numbers))
	}
	wantDistinct(t, numbers)
}

func blockOf(number int64) int64 { return number & math.MaxUint32 / ordernumber.BlockSize }

func TestNumbersHaveTheirLayout(t *testing.T) {
	t.Parallel()
	r := newNumbersRig(t)
	seconds := int64(midday.Sub(ordernumber.Epoch) / time.Second)
	source := r.process()
	got := r.take(source, 3)
	block := blockOf(got[0])
	for _, n := range got {
		if n>>32 != seconds || blockOf(n) != block {
			t.Errorf("got %x, want %d seconds and a number of block %x", n, seconds, block)
		}
	}
	r.clock.advance(time.Second)
	later := r.take(source, 1)[0]
	if later>>32 != seconds+1 || blockOf(later) != block {
		t.Errorf("a second later: got %x, want a second more and a number of block %x", later, block)
	}
	ttl, err := r.rdb.TTL(t.Context(), r.keys.OrderCounter("20261121")).Result()
	if err != nil || ttl < 47*time.Hour || ttl > 48*time.Hour {
		t.Errorf("the day's counter expires in %s, %v, want about 48 h", ttl, err)
	}

	lastSecond := ordernumber.Epoch.Add((1<<31 - 1) * time.Second)
	r.clock.advance(lastSecond.Sub(r.clock.read()))
	if got := r.take(source, 1)[0]; got>>32 != 1<<31-1 || got < 0 {
		t.Errorf("in the last second that fits: got %x", got)
	}
}

func TestNumbersStartAfreshEachDay(t *testing.T) {
	t.Parallel()
	r := newNumbersRig(t)
	source, other := r.process(), r.process()
	r.clock.advance(12*time.Hour - time.Second) // 23:59:59
	numbers := append(r.take(source, 10), r.take(other, 10)...)
	r.clock.advance(time.Second) // 00:00:00
	first := r.take(source, 10)
	numbers = append(numbers, first...)
	r.clock.advance(-time.Second) // a host's clock is set back over midnight
	numbers = append(numbers, r.take(source, 10)...)
	r.clock.advance(time.Second)
	numbers = append(numbers, r.take(other, 10)...)
	numbers = append(numbers, r.take(source, 10)...)
	wantDistinct(t, numbers)
	n, err := r.rdb.Exists(t.Context(), r.keys.OrderCounter("20261121"), r.keys.OrderCounter("20261122")).Result()
	if err != nil || n != 2 {
		t.Errorf("got %d counters, %v, want one for each day", n, err)
	}
}

// All of it happens within one second, so that only the counter keeps the numbers distinct; different seconds would
// hide a fault. What a process has leased before Redis lost the counter is still in use when others lease after it.
func TestACounterThatRedisLostRepeatsNoNumber(t *testing.T) {
	t.Parallel()
	r := newNumbersRig(t)
	before := r.process()
	numbers := r.take(before, ordernumber.BlockSize/2)
	for range 3 {
		lost := []string{r.keys.OrderCounter("20261121"), r.keys.OrderCounterIssuer("20261121")}
		if err := r.rdb.Del(t.Context(), lost...).Err(); err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, r.take(r.process(), ordernumber.BlockSize)...)
	}
	numbers = append(numbers, r.take(before, ordernumber.BlockSize/2)...)
	wantDistinct(t, numbers)
}

// TestARestoredCounterRepeatsNoNumber: a Redis that comes back with an older file, or a late replica that takes over,
// has a counter below what processes have leased and still use in that very second.
func TestARestoredCounterRepeatsNoNumber(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := &numbersRig{t, testkit.Client(t, server.URL()), pipeline.Keys{Prefix: "sluice"}, &clock{now: midday}}
	numbers := r.take(r.process(), 1)
	saved, err := server.SaveData()
	if err != nil {
		t.Fatal(err)
	}
	replica := testkit.PrivateReplica(t, server)
	if err := replica.Promote(t.Context()); err != nil { // it receives nothing more
		t.Fatal(err)
	}
	before := r.process()
	numbers = append(numbers, r.take(before, ordernumber.BlockSize/2)...)
	if err := errors.Join(server.Kill(), server.RestoreData(saved), server.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	numbers = append(numbers, r.take(r.process(), ordernumber.BlockSize)...)
	r.rdb = testkit.Client(t, replica.URL())
	numbers = append(numbers, r.take(r.process(), ordernumber.BlockSize)...)
	numbers = append(numbers, r.take(before, ordernumber.BlockSize/2)...)
	wantDistinct(t, numbers)
}

func TestAFailedLeaseLosesNothing(t *testing.T) {
	t.Parallel()
	r := newNumbersRig(t)
	proxy, source := r.throughProxy()
	numbers := r.take(source, ordernumber.BlockSize-1)
	first := r.counter()
	proxy.Cut()
	last := make([]int64, 1)
	if err := source.Take(t.Context(), last); err != nil {
		t.Errorf("the last number of the lease needs no Redis: %v", err)
	}
	for range 2 {
		if err := source.Take(t.Context(), make([]int64, 1)); err == nil {
			t.Error("a number came from nowhere")
		}
	}
	proxy.Heal()
	numbers = append(append(numbers, last...), r.take(source, 10)...)
	proxy.DropReplyTo("evalsha", 1) // leased, but the reply is lost: the block is skipped
	if err := source.Take(t.Context(), make([]int64, ordernumber.BlockSize)); err == nil {
		t.Error("the reply was not lost")
	}
	numbers = append(numbers, r.take(source, ordernumber.BlockSize)...)
	wantDistinct(t, numbers)
	if leased, want := r.counter(), first+3*ordernumber.BlockSize; leased != want {
		t.Errorf("the counter stands at %d, want %d: 3 leases more", leased, want)
	}
}

// A counter that began high goes beyond 2^32: its low bits go on from 0, and never into the seconds.
func TestACounterGoesBeyondItsEnd(t *testing.T) {
	t.Parallel()
	r := newNumbersRig(t)
	numbers := r.take(r.process(), 1)
	const high = 1<<32 - ordernumber.BlockSize/2
	if err := r.rdb.Set(t.Context(), r.keys.OrderCounter("20261121"), high, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	source := r.process()
	numbers = append(numbers, r.take(source, 2*ordernumber.BlockSize)...)
	for _, n := range numbers {
		if n>>32 != int64(midday.Sub(ordernumber.Epoch)/time.Second) {
			t.Fatalf("number %x: the counter ran into the seconds", n)
		}
	}
	if got := r.counter(); got <= math.MaxUint32 {
		t.Errorf("the counter stands at %d, which is not beyond 32 bits", got)
	}
	wantDistinct(t, numbers)
}

func TestNumbersAreTakenWithinTheDeadline(t *testing.T) {
	t.Parallel()
	r := newNumbersRig(t)
	proxy, source := r.throughProxy()
	proxy.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	pipelinetest.Together(4, func(int) {
		if err := source.Take(ctx, make([]int64, 1)); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want no answer in time", err)
		}
	})
	if took := time.Since(began); took > pipelinetest.CallLimit { // without a deadline it takes for ever
		t.Errorf("took %s", took)
	}
	proxy.Thaw()
	r.take(source, 1)
}

// What a buyer sees of two numbers does not grow with how many were issued in between.
func TestNumbersHideHowManyThereAre(t *testing.T) {
	t.Parallel()
	r := newNumbersRig(t)
	source := r.process()
	const blocks = 200
	var ascending int
	var last int64
	for range blocks {
		taken := r.take(source, ordernumber.BlockSize)
		if slices.IsSorted(taken) {
			t.Fatal("a block's numbers come in their order")
		}
		if blockOf(taken[0]) > last {
			ascending++
		}
		last = blockOf(taken[0])
	}
	if ascending < blocks/4 || ascending > blocks*3/4 { // half of them, give or take seven times the deviation
		t.Errorf("%d of %d blocks are above the one before", ascending, blocks)
	}
}

// The veil is a permutation for every issuer, and another one for each.
func TestTheVeil(t *testing.T) {
	t.Parallel()
	const all = 1 << 20
	seen := make([]bool, all)
	same := 0
	for block := range uint32(all) {
		veiled := ordernumber.Veil("a:b", block)
		if veiled >= all || seen[veiled] {
			t.Fatalf("block %d becomes %d, as another one does", block, veiled)
		}
		seen[veiled] = true
		if block < 1000 && veiled == ordernumber.Veil("a:c", block) {
			same++
		}
	}
	if same > 10 {
		t.Errorf("two issuers veil %d of 1000 blocks alike", same)
	}
	if ordernumber.Veil("a:b", all+7) != ordernumber.Veil("a:b", 7) {
		t.Error("a counter beyond its end is another block")
	}
}
