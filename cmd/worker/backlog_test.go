package main_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
)

const (
	// longBacklog is how many entries a worker finds in the stream. In a map of events they would take 60 MB.
	longBacklog = 120_000
	// mostWorker is what a worker may take of the machine's memory, in MB, however long the backlog is. It holds two
	// batches of 500 orders, and what their statements take; the rest is the program and garbage not yet collected.
	mostWorker = 96
	// admitBatch is the most that one call of the script takes.
	admitBatch = 128
)

// TestALongBacklogNeedsNoMemory: a worker reads of the stream what it can persist, and no more.
func TestALongBacklogNeedsNoMemory(t *testing.T) {
	t.Parallel()
	s := newSite(t, longBacklog)
	for n := 0; n < longBacklog; n += admitBatch {
		s.admit(t, n, min(n+admitBatch, longBacklog))
	}
	w := s.startWorker(t)
	testkit.Eventually(t, time.Minute, "the worker has joined", func() bool { return s.joined(t, 1) })
	begun := resident(t, w.PID())
	if begun.peak == 0 {
		t.Skip("this system does not tell what a process takes")
	}
	testkit.Eventually(t, 10*time.Minute, "everything is persisted", func() bool { return s.settled(t) })
	ended := resident(t, w.PID())
	t.Logf("resident memory of the worker: %d MB at the beginning, %d MB after %d orders, %d MB at most", begun.now,
		ended.now, longBacklog, ended.peak)
	if ended.peak > mostWorker {
		t.Errorf("the worker took %d MB, want at most %d", ended.peak, mostWorker)
	}
	if report := s.audit(t); !report.Clean() || report.Live != longBacklog {
		t.Errorf("got %+v, want %d orders", report, longBacklog)
	}
}

// admit lets the buyers of some numbers order, in one call.
func (s *site) admit(t *testing.T, from, to int) {
	t.Helper()
	requests := make([]lua.AdmitRequest, 0, to-from)
	for n := from; n < to; n++ {
		id, err := uuid.NewV7()
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, lua.AdmitRequest{
			OrderID: id.String(), Number: int64(n) + 1, UserID: fmt.Sprint("buyer-", n), Quantity: 1,
		})
	}
	keys := pipeline.DefaultKeys.ForSale(s.sale.Partitions[0], s.sale.ID)
	reply, err := lua.Admit(t.Context(), s.rdb, keys, s.sale.ID, longBacklog, requests)
	if err != nil {
		t.Fatal(err)
	}
	for i, outcome := range reply.Outcomes {
		if outcome.Code != lua.AdmitAccepted {
			t.Fatalf("%s: got %s, want accepted", requests[i].UserID, outcome.Code)
		}
	}
}

// memory is what a process has of the machine's memory, in MB; 0 where the system does not tell.
type memory struct{ now, peak int }

func resident(t *testing.T, pid int) memory {
	t.Helper()
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	value := func(name string) int {
		_, after, _ := strings.Cut(string(text), name+":")
		fields := strings.Fields(after)
		if len(fields) == 0 {
			return 0
		}
		kb, err := strconv.Atoi(fields[0])
		if err != nil {
			t.Fatal(err)
		}
		return kb / 1024
	}
	return memory{value("VmRSS"), value("VmHWM")}
}
