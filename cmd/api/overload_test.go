package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/testkit"
)

const (
	// floodClients are more than a gate's queue holds (8192): the rest is refused at once.
	floodClients = 10_000
	// floods is how often all of them order at the same moment.
	floods = 5
	// memoryLimit is the collector's, in MiB (internal/process): 30 KiB for each connection and its request, and the rest.
	memoryLimit = 384
	// mostResident is what the api may take of the machine's memory under any number of such floods, in MiB. The limit is
	// one for the collector: what lives is not bounded by it, and takes more where it is too much. A sixth is added for
	// what the runtime does not count, and for what is allocated while it collects.
	mostResident = memoryLimit * 7 / 6
)

// TestAFloodIsBoundedInMemory: an api process, the program that ships, gets more orders than it can take, again and
// again, while Redis stands still. What its queues don't hold is refused, and its memory stays within a bound.
func TestAFloodIsBoundedInMemory(t *testing.T) {
	s := newSite(t, floods*floodClients, "MAX_CONNECTIONS=20000") // more than its memory is meant for
	before := s.memory(t)
	if before.peak == 0 {
		t.Skip("this system does not tell what a process takes")
	}
	f := newFlood(t, s)
	connected, first := s.memory(t), memory{}
	for n := range floods {
		f.strike(t, n)
		if n == 0 {
			first = s.memory(t)
		}
	}
	after := s.memory(t)
	t.Logf("resident memory in MB: %d before, %d with %d connections, %d after a flood (at most %d), %d after %d (at most %d)",
		before.now, connected.now, floodClients, first.now, first.peak, after.now, floods, after.peak)
	t.Logf("orders: %d accepted, %d refused, %d cut off", f.accepted.Load(), f.refused.Load(), f.cut.Load())
	if after.peak > mostResident {
		t.Errorf("the api took %d MB, want at most %d", after.peak, mostResident)
	}
	if f.accepted.Load() == 0 {
		t.Error("no order was accepted")
	}
}

// flood is many clients with a connection each.
type flood struct {
	s                      *site
	conns                  []net.Conn
	readers                []*bufio.Reader
	accepted, refused, cut atomic.Int64 // cut: by the api's own deadlines, on a machine that is busy with something else
}

func newFlood(t *testing.T, s *site) *flood {
	t.Helper()
	f := &flood{s: s, conns: make([]net.Conn, floodClients), readers: make([]*bufio.Reader, floodClients)}
	t.Cleanup(func() {
		for _, conn := range f.conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
	})
	for i := range f.conns {
		must(t, f.connect(i))
	}
	return f
}

func (f *flood) connect(i int) error {
	conn, err := net.DialTimeout("tcp", f.s.address, pushLimit)
	if err == nil {
		f.conns[i], f.readers[i] = conn, bufio.NewReaderSize(conn, 512)
	}
	return err
}

// strike sends one order of each client, and lets Redis stand still until some of them were refused.
func (f *flood) strike(t *testing.T, round int) {
	t.Helper()
	must(t, f.s.servers.Redis.Pause())
	refused := f.refused.Load()
	var all sync.WaitGroup
	for i := range f.conns {
		all.Go(func() { f.order(t, i, round) })
	}
	testkit.Eventually(t, pushLimit, "orders to be refused", func() bool { return f.refused.Load() > refused })
	must(t, f.s.servers.Redis.Resume())
	all.Wait()
}

func (f *flood) order(t *testing.T, i, round int) {
	const body = `{"quantity":1}`
	_ = f.conns[i].SetDeadline(time.Now().Add(pushLimit))
	_, err := fmt.Fprintf(f.conns[i], "POST /v1/sales/%s/orders HTTP/1.1\r\nHost: localhost\r\nX-User-Id: %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", f.s.sale.ID,
		"buyer-"+strconv.Itoa(round*floodClients+i), len(body), body)
	var answer *http.Response
	if err == nil {
		answer, err = http.ReadResponse(f.readers[i], nil)
	}
	if err != nil {
		f.cut.Add(1)
		_ = f.conns[i].Close()
		if err := f.connect(i); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
		return
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusAccepted:
		f.accepted.Add(1)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		f.refused.Add(1)
	default:
		t.Errorf("client %d: got %s", i, answer.Status)
	}
}
