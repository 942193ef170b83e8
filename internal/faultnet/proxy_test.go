package faultnet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sluice/internal/faultnet"
	"sluice/internal/testkit"
)

// soon bounds what should happen at once, on a busy machine.
const soon = 20 * time.Second

// check ends the test on an error.
func check(t testing.TB, err error, what ...string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(what, " "), err)
	}
}

// errOf drops the value of a call.
func errOf[T any](_ T, err error) error { return err }

func listen(t *testing.T, url string) *faultnet.Proxy {
	t.Helper()
	p, err := faultnet.Listen(url)
	check(t, err)
	t.Cleanup(func() {
		check(t, p.Close(), "close the proxy")
	})
	return p
}

// redisPair is a client through a proxy, and one that connects to the same server directly.
type redisPair struct {
	proxy           *faultnet.Proxy
	through, direct *redis.Client
	key             string
}

func newRedisPair(t *testing.T) *redisPair {
	t.Helper()
	direct := testkit.Redis(t)
	key := testkit.Prefix(t) + ":k"
	proxy := listen(t, "unix://"+direct.Options().Addr)
	if direct.Options().Network == "tcp" {
		proxy = listen(t, "redis://"+direct.Options().Addr)
	}
	return &redisPair{proxy, testkit.Client(t, proxy.URL()), direct, key}
}

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// silent reports whether an error says that no answer came in time.
func silent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

func (p *redisPair) value(t *testing.T) string {
	t.Helper()
	value, err := p.direct.Get(within(t, soon), p.key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return value
}

// echoBig sets and gets a value of many chunks.
func (p *redisPair) echoBig(t *testing.T) {
	t.Helper()
	ctx, big := within(t, soon), bytes.Repeat([]byte("0123456789\r\n"), 300_000)
	check(t, p.through.Set(ctx, p.key, big, 0).Err())
	if got, err := p.through.Get(ctx, p.key).Bytes(); err != nil || !bytes.Equal(got, big) {
		t.Fatalf("got %d bytes, %v, want the %d that were set", len(got), err, len(big))
	}
}

func TestTheProxyChangesNothingUntilTold(t *testing.T) {
	t.Parallel()
	p := newRedisPair(t)
	ctx := within(t, soon)
	p.echoBig(t)
	pipe := p.through.Pipeline()
	for range 1000 {
		pipe.Incr(ctx, p.key+":n")
	}
	check(t, errOf(pipe.Exec(ctx)))
	if n, err := p.direct.Get(ctx, p.key+":n").Int(); err != nil || n != 1000 {
		t.Fatalf("got %d, %v, want 1000", n, err)
	}
}

func TestTheProxySpeaksTCP(t *testing.T) {
	t.Parallel()
	spare, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	_, port, _ := net.SplitHostPort(spare.Addr().String())
	check(t, spare.Close())
	testkit.PrivateRedis(t, "port "+port, "bind 127.0.0.1")
	proxy := listen(t, "redis://127.0.0.1:"+port)
	client := testkit.Client(t, proxy.URL())
	check(t, client.Ping(within(t, soon)).Err())
	proxy.Cut()
	if err := client.Ping(within(t, soon)).Err(); err == nil {
		t.Fatal("a cut connection answered")
	}
	proxy.Heal()
	check(t, client.Ping(within(t, soon)).Err())
}

func TestCutBreaksAndRefusesUntilHeal(t *testing.T) {
	t.Parallel()
	p := newRedisPair(t)
	check(t, p.through.Ping(within(t, soon)).Err())
	waiting := make(chan error, 1)
	go func() { waiting <- p.through.BLPop(within(t, soon), soon, p.key).Err() }()
	testkit.Eventually(t, soon, "the read to occupy the first connection", func() bool {
		return p.through.Ping(within(t, soon)).Err() == nil && p.proxy.Connections() == 2
	})

	p.proxy.Cut()
	if err := <-waiting; err == nil || errors.Is(err, redis.Nil) {
		t.Errorf("a read that was cut off: got %v, want an error", err)
	}
	if err := p.through.Ping(within(t, soon)).Err(); err == nil {
		t.Error("a new connection got through")
	}
	testkit.Eventually(t, soon, "the connections to end", func() bool { return p.proxy.Connections() == 0 })

	p.proxy.Heal()
	check(t, p.through.Ping(within(t, soon)).Err(), "after Heal")
}

func TestFreezeHoldsBackWhatThawDelivers(t *testing.T) {
	t.Parallel()
	p := newRedisPair(t)
	check(t, p.through.Ping(within(t, soon)).Err())
	p.proxy.Freeze()
	p.proxy.Freeze() // twice is once
	if err := p.through.Set(within(t, time.Second), p.key, "late", 0).Err(); !silent(err) {
		t.Errorf("through a frozen network: got %v, want no answer", err)
	}
	if got := p.value(t); got != "" {
		t.Fatalf("the server holds %q, want nothing yet", got)
	}
	p.proxy.Thaw()
	testkit.Eventually(t, soon, "the request of a client that has left", func() bool { return p.value(t) == "late" })
	check(t, p.through.Ping(within(t, soon)).Err(), "after Thaw")
}

func TestNobodyHearsThroughAFrozenNetworkThatTheServerDied(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	proxy := listen(t, server.URL())
	client := testkit.Client(t, proxy.URL())
	check(t, client.Ping(within(t, soon)).Err())
	proxy.Freeze()
	check(t, server.Kill())
	for range 2 { // on the open connection, then on a new one
		if err := client.Ping(within(t, 100*time.Millisecond)).Err(); !silent(err) {
			t.Errorf("got %v, want silence", err)
		}
	}
	proxy.Thaw()
	err := client.Ping(within(t, soon)).Err()
	if err == nil || silent(err) {
		t.Errorf("after Thaw: got %v, want the end of the connection", err)
	}
}

func TestSlowDelaysEveryReply(t *testing.T) {
	t.Parallel()
	p := newRedisPair(t)
	check(t, p.through.Ping(within(t, soon)).Err())
	const delay = 50 * time.Millisecond
	p.proxy.Slow(delay)
	began := time.Now()
	for range 3 {
		check(t, p.through.Ping(within(t, soon)).Err())
	}
	if took := time.Since(began); took < 3*delay {
		t.Errorf("3 calls took %s, want at least %s", took, 3*delay)
	}
	p.proxy.Slow(soon)
	if err := p.through.Ping(within(t, delay)).Err(); !silent(err) {
		t.Errorf("got %v, want no answer in time", err)
	}
	p.proxy.Slow(0)
	check(t, p.through.Ping(within(t, soon)).Err(), "fast again")
}

func TestALostReplyIsOfARequestThatWasCarriedOut(t *testing.T) {
	t.Parallel()
	p := newRedisPair(t)
	ctx := within(t, soon)
	p.proxy.DropReplyTo("INCR", 2)
	for i := range 3 {
		if err := p.through.Get(ctx, p.key+":other").Err(); !errors.Is(err, redis.Nil) {
			t.Fatalf("a request that is not meant: %v", err)
		}
		err := p.through.Incr(ctx, p.key).Err()
		if lost := i < 2; lost != (err != nil) {
			t.Errorf("call %d: got %v, lost %t", i, err, lost)
		}
		if got, want := p.value(t), fmt.Sprint(i+1); got != want {
			t.Errorf("call %d: the server counts %s, want %s", i, got, want)
		}
	}
	if got := p.proxy.Lost(); got != 2 {
		t.Errorf("lost %d replies, want 2", got)
	}
}

// The replies before the lost one arrive, the later ones do not; the whole pipeline is carried out.
func TestALostReplyInAPipeline(t *testing.T) {
	t.Parallel()
	p := newRedisPair(t)
	ctx := within(t, soon)
	check(t, p.through.Ping(ctx).Err())
	p.proxy.DropReplyTo("third", 1)
	pipe := p.through.Pipeline()
	var calls []*redis.IntCmd
	for _, value := range []string{"first", "second", "third", "fourth"} {
		calls = append(calls, pipe.RPush(ctx, p.key, value))
	}
	if _, err := pipe.Exec(ctx); err == nil {
		t.Error("nothing was lost")
	}
	if calls[0].Val() != 1 || calls[1].Val() != 2 || calls[2].Val() != 0 || calls[3].Val() != 0 {
		t.Errorf("got replies %v, want 1, 2 and no more", calls)
	}
	got, err := p.direct.LRange(ctx, p.key, 0, -1).Result()
	if err != nil || !slices.Equal(got, []string{"first", "second", "third", "fourth"}) {
		t.Errorf("carried out: %v, %v", got, err)
	}
}

func TestDropRepliesTakesWhateverComes(t *testing.T) {
	t.Parallel()
	p := newRedisPair(t)
	ctx := within(t, soon)
	check(t, p.through.Ping(ctx).Err())
	p.proxy.DropReplies(1)
	if err := p.through.Set(ctx, p.key, "v", 0).Err(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want a closed connection", err)
	}
	if got := p.value(t); got != "v" {
		t.Errorf("the server holds %q, want v", got)
	}
	check(t, p.through.Ping(ctx).Err(), "the reply after it")
	p.proxy.DropReplies(-1)
	p.proxy.DropReplyTo("ping", 0)
	if err := p.through.Ping(ctx).Err(); err != nil || p.proxy.Lost() != 1 {
		t.Errorf("none to lose: %v, %d lost", err, p.proxy.Lost())
	}
}

// connect opens a connection that is closed when the test ends, in whatever state it then is.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(within(t, soon), url)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestPostgresCommitsWhatNobodyHearsOf(t *testing.T) {
	t.Parallel()
	url := testkit.EmptyDatabase(t)
	proxy := listen(t, url)
	ctx := within(t, soon)
	direct := connect(t, url)
	check(t, errOf(direct.Exec(ctx, "create table notes (text text)")))
	through := connect(t, proxy.URL())
	for _, text := range []string{"received", "lost"} {
		proxy.DropReplyTo("lost", 1)
		_, err := through.Exec(ctx, "insert into notes values ($1)", text)
		if received := text == "received"; received != (err == nil) {
			t.Errorf("%s: %v", text, err)
		}
	}
	var n int
	if err := direct.QueryRow(ctx, "select count(*) from notes").Scan(&n); err != nil || n != 2 {
		t.Errorf("got %d rows, %v, want 2", n, err)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	p := newRedisPair(t)
	p.proxy.Freeze()
	var calls sync.WaitGroup
	const connections = 15
	for range connections {
		calls.Go(func() {
			if err := p.through.Ping(within(t, soon)).Err(); err == nil {
				t.Error("a frozen network answered")
			}
		})
	}
	testkit.Eventually(t, soon, "connections", func() bool { return p.proxy.Connections() == connections })
	for range 2 {
		check(t, p.proxy.Close())
	}
	if n := p.proxy.Connections(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	calls.Wait()
	if err := p.through.Ping(within(t, soon)).Err(); err == nil {
		t.Error("a closed proxy answered")
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	proxy := listen(t, "unix:///nowhere/redis.sock")
	if err := testkit.Client(t, proxy.URL()).Ping(within(t, soon)).Err(); err == nil {
		t.Error("got an answer without a server")
	}
}
