package admission_test

import (
	"bytes"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/faultnet"
	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/journal"
	"sluice/pipeline/pipelinetest"
)

// strictRig is a rig on servers of its own whose admission refuses what no replica has.
type strictRig struct {
	*pipelinetest.Rig
	replica *localservers.Redis // nil: there is none
	journal *journal.Journal    // of the admission
	log     *pipelinetest.LockedLog
	dying   atomic.Pointer[string] // the user at whose next call the replica hangs
}

// newStrictRig has an admission through a proxy, so that the replica can hang at a known moment: once a call was let
// through to the script, and before the script has run.
func newStrictRig(t *testing.T, limit time.Duration) *strictRig {
	t.Helper()
	server := testkit.PrivateRedis(t)
	f := &strictRig{
		replica: testkit.PrivateReplica(t, server), journal: journal.Open(journal.Options{}),
		log: &pipelinetest.LockedLog{},
	}
	f.Rig = pipelinetest.New(t, pipelinetest.Options{
		RedisURL: server.URL(), Log: slog.NewTextHandler(f.log, nil), Sale: pipeline.Sale{Total: 1000},
	})
	proxy := pipelinetest.Through(t, server.URL())
	proxy.Watch(func(e faultnet.Exchange) bool {
		user := f.dying.Load()
		if user == nil || e.Moment != faultnet.Before || !bytes.Contains(e.Request, []byte("\r\n"+*user+"\r\n")) ||
			!f.dying.CompareAndSwap(user, nil) {
			return true
		}
		if err := f.replica.Pause(); err != nil {
			t.Error(err)
		}
		return true
	})
	f.Admission = f.NewAdmission(testkit.Client(t, proxy.URL()), admission.Options{
		Durability: replica, DurabilityStrict: true, Journal: f.journal, RequestTimeout: limit,
	})
	strictlyAccepted(f.Rig, "first")
	return f
}

// strictlyAccepted waits until a buyer's order is accepted, by the replica too.
func strictlyAccepted(r *pipelinetest.Rig, user string) {
	r.Helper()
	testkit.Eventually(r.T, pipelinetest.CallLimit, user+" to be accepted", func() bool {
		got, err := r.Try(pipeline.OrderRequest{UserID: user, Quantity: 1, IdempotencyKey: user})
		if err == nil && got.Receipt.Durability != replica {
			r.Fatalf("%s: got %+v, want replica or nothing", user, got.Receipt)
		}
		return err == nil
	})
}

// unconfirmed counts the accepts that got no receipt at once.
func unconfirmed(r *pipelinetest.Rig) float64 { return r.Count("sluice_admissions_unconfirmed_total") }

func (f *strictRig) resume() {
	f.Helper()
	if err := f.replica.Resume(); err != nil {
		f.Fatal(err)
	}
}

// journaled are the order ids in the admission's journal.
func (f *strictRig) journaled() map[string]bool {
	f.Helper()
	ids := map[string]bool{}
	if err := f.journal.Each(f.Ctx(), f.Sale.Partitions, func(_ pipeline.SalePartition, accepts []pipeline.Accept) error {
		for _, a := range accepts {
			ids[a.OrderID] = true
		}
		return nil
	}); err != nil {
		f.Fatal(err)
	}
	return ids
}

func wantRefused(t *testing.T, user string, err error) {
	t.Helper()
	if !errors.Is(err, admission.ErrDurabilityUnavailable) || pipeline.KindOf(err) != pipeline.KindUnavailable {
		t.Errorf("%s: got %v, want a refusal because nothing is confirmed", user, err)
	}
}

// wantUnknown expects the answer to a request whose order may stand.
func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, admission.ErrDurabilityUnavailable) || pipeline.KindOf(err) != pipeline.KindUnavailable {
		t.Errorf("got %v, want that the outcome is unknown", err)
	}
}

// TestWithoutAReplicaNothingIsTaken: no unit, no slot and no event; the server is asked once a second, and not by every
// batch; and /readyz says so. Once a replica is there, orders are accepted.
func TestWithoutAReplicaNothingIsTaken(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	log := &pipelinetest.LockedLog{}
	r := pipelinetest.New(t, pipelinetest.Options{
		RedisURL: server.URL(), Log: slog.NewTextHandler(log, nil), Sale: pipeline.Sale{Total: 1000},
		Admission: admission.Options{
			Durability: replica, DurabilityStrict: true, AttemptTimeout: pipelinetest.CallLimit,
		},
	})
	before, began := r.Dump(r.Sale), time.Now()
	const refusals = 40
	for _, user := range users("refused", refusals) {
		_, err := r.Try(pipeline.OrderRequest{UserID: user, Quantity: 1})
		wantRefused(t, user, err)
	}
	if got, most := waits(r), int(time.Since(began)/time.Second)+1; got > most || got == 0 {
		t.Errorf("%d of %d requests waited for a replica, want 1 to %d", got, refusals, most)
	}
	wantRefused(t, "the rehearsal", r.Admission.Rehearse(r.Ctx(), r.Sale.Partitions[0]))
	if got := r.Dump(r.Sale); got != before {
		t.Errorf("got %s, want nothing changed: %s", got, before)
	}
	if got := r.Labelled("sluice_admissions_total", "result", "durability-unavailable"); got != refusals {
		t.Errorf("the metric counts %v refusals, want %d", got, refusals)
	}
	if got := log.Count("orders are refused"); got != 1 {
		t.Errorf("the log says %d times that orders are refused, want once", got)
	}
	testkit.PrivateReplica(t, server)
	r.Ensure() // with its first replica, a server begins another history
	testkit.Eventually(t, pipelinetest.CallLimit, "an order to be rehearsed",
		func() bool { return r.Admission.Rehearse(r.Ctx(), r.Sale.Partitions[0]) == nil })
	strictlyAccepted(r, "ann")
}

// TestAReplicaThatWentAwayWhileNobodyOrdered: /readyz finds out, and so does the next order before it takes a unit.
func TestAReplicaThatWentAwayWhileNobodyOrdered(t *testing.T) {
	t.Parallel()
	f := newStrictRig(t, 0)
	if err := f.replica.Pause(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, pipelinetest.CallLimit, "the rehearsal to notice", func() bool {
		return errors.Is(f.Admission.Rehearse(f.Ctx(), f.Sale.Partitions[0]), admission.ErrDurabilityUnavailable)
	})
	before := f.Dump(f.Sale)
	_, err := f.Try(pipeline.OrderRequest{UserID: "ann", Quantity: 1})
	wantRefused(t, "ann", err)
	if got := f.Dump(f.Sale); got != before {
		t.Errorf("got %s, want nothing changed: %s", got, before)
	}
	f.resume()
	strictlyAccepted(f.Rig, "ann")
	accepted := 0
	for _, user := range users("after", 20) {
		if _, err := f.Try(pipeline.OrderRequest{UserID: user, Quantity: 1}); err == nil {
			accepted++
		}
	}
	if accepted < 10 { // a busy disk may be late for some
		t.Errorf("with the replica back, %d of 20 orders were accepted", accepted)
	}
}

// TestAnUnconfirmedAcceptIsNotTold: the replica hangs when the script runs. The buyer is told neither that the order is
// accepted nor that it is not; the journal has it; others are refused meanwhile; and once the replica is back, the same
// key finds the same order, once.
func TestAnUnconfirmedAcceptIsNotTold(t *testing.T) {
	t.Parallel()
	f := newStrictRig(t, 4*time.Second)
	ann, before := "ann", unconfirmed(f.Rig)
	f.dying.Store(&ann)
	request := pipeline.OrderRequest{UserID: ann, Quantity: 1, IdempotencyKey: "k"}
	answered := make(chan error, 1)
	go func() {
		_, err := f.Try(request)
		answered <- err
	}()
	testkit.Eventually(t, pipelinetest.CallLimit, "ann's slot", func() bool { return f.Slots(f.Sale)[ann].OrderID != "" })
	testkit.Eventually(t, pipelinetest.CallLimit, "others to be refused before ann has an answer", func() bool {
		_, err := f.Try(pipeline.OrderRequest{UserID: "bob", Quantity: 1})
		return errors.Is(err, admission.ErrDurabilityUnavailable)
	})
	if len(answered) > 0 {
		t.Error("others had to wait for ann's confirmation")
	}
	wantUnknown(t, <-answered)
	slot := f.Slots(f.Sale)[ann]
	if !f.journaled()[slot.OrderID] {
		t.Error("the journal does not have the order")
	}
	for _, level := range []pipeline.Durability{memory, fsync} {
		if got := f.Labelled("sluice_admissions_durability_total", "level", string(level)); got != 0 {
			t.Errorf("%v receipts state %s", got, level)
		}
	}
	if got := unconfirmed(f.Rig) - before; got != 1 {
		t.Errorf("the metric counts %v unconfirmed accepts, want 1", got)
	}
	var again admission.Decision
	var err error
	testkit.Eventually(t, pipelinetest.CallLimit, "an answer to the key, before anything is confirmed", func() bool {
		_, err = f.Try(request) // its own time may run out on a busy machine
		return pipeline.KindOf(err) != pipeline.KindUnavailable || errors.Is(err, admission.ErrDurabilityUnavailable)
	})
	wantRefused(t, ann, err) // it is no replay
	f.resume()
	testkit.Eventually(t, pipelinetest.CallLimit, "the key to find the order", func() bool {
		again, err = f.Try(request)
		return err == nil
	})
	if got := again.Receipt; again.Result != admission.Replayed || got.OrderID != slot.OrderID ||
		got.Number != slot.Number || got.Durability != replica {
		t.Errorf("got %q, %+v, want the order of %+v at replica", again.Result, got, slot)
	}
	if got := f.Stock(f.Sale); got != 998 || len(f.Events(f.Sale)) != 2 {
		t.Errorf("got %d units left and %d events, want 998 and 2: one each for first and ann", got, len(f.Events(f.Sale)))
	}
}

// TestALateConfirmationIsAnAccept: the request still waits when the replica comes back, and gets its 202, with the
// level and the number of the one order that was made.
func TestALateConfirmationIsAnAccept(t *testing.T) {
	t.Parallel()
	f := newStrictRig(t, 0)
	ann, before := "ann", unconfirmed(f.Rig)
	f.dying.Store(&ann)
	q := newRequests(f.Rig)
	q.send(f.Ctx(), ann)
	testkit.Eventually(t, pipelinetest.CallLimit, "the accept to lack its confirmation",
		func() bool { return unconfirmed(f.Rig) == before+1 })
	f.resume()
	q.wantAllAccepted()
	if got := q.done()[ann].Receipt.Durability; got != replica {
		t.Errorf("got %q, want replica", got)
	}
}

// TestAnUnconfirmedReplayIsNotTold: an order that was accepted before is a 202 only when the replica has it now.
func TestAnUnconfirmedReplayIsNotTold(t *testing.T) {
	t.Parallel()
	f := newStrictRig(t, 2*time.Second)
	first := "first"
	f.dying.Store(&first)
	request := pipeline.OrderRequest{UserID: first, Quantity: 1, IdempotencyKey: first}
	_, err := f.Try(request)
	wantUnknown(t, err)
	f.resume()
	strictlyAccepted(f.Rig, first)
}

// TestWhatWasTakenIsNotDenied: Redis has accepted the order, and answers something else when it is asked again, because
// it has to be verified by then. The order may come back, so the buyer is not told that there is none.
func TestWhatWasTakenIsNotDenied(t *testing.T) {
	t.Parallel()
	f := newStrictRig(t, 4*time.Second)
	ann, before := "ann", unconfirmed(f.Rig)
	f.dying.Store(&ann)
	answered := make(chan error, 1)
	go func() {
		_, err := f.Try(pipeline.OrderRequest{UserID: ann, Quantity: 1})
		answered <- err
	}()
	testkit.Eventually(t, pipelinetest.CallLimit, "the accept to lack its confirmation",
		func() bool { return unconfirmed(f.Rig) == before+1 })
	if err := f.Redis.Set(f.Ctx(), f.Keys.Trusted(f.Sale.PartitionOf(ann)), "another-process", 0).Err(); err != nil {
		t.Fatal(err)
	}
	f.resume()
	wantUnknown(t, <-answered)
}

// TestALostReplyIsNotDenied: the call ran and its reply is lost, and then no replica is there any more. That the call
// is not repeated is no reason to tell its buyer that nothing was ordered.
func TestALostReplyIsNotDenied(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	second := testkit.PrivateReplica(t, server)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1000}})
	proxy := pipelinetest.Through(t, server.URL())
	r.Admission = r.NewAdmission(testkit.Client(t, proxy.URL()), admission.Options{
		Durability: replica, DurabilityStrict: true, RequestTimeout: 4 * time.Second,
	})
	proxy.Watch(func(e faultnet.Exchange) bool {
		if !bytes.Contains(e.Request, []byte("\r\nann\r\n")) {
			return true
		}
		if e.Moment == faultnet.After {
			if err := second.Pause(); err != nil {
				t.Error(err)
			}
		}
		return e.Moment == faultnet.Before
	})
	strictlyAccepted(r, "first")
	_, err := r.Try(pipeline.OrderRequest{UserID: "ann", Quantity: 1})
	if r.Slots(r.Sale)["ann"] == (lua.Slot{}) {
		t.Fatal("the call did not run: this is no test of it")
	}
	wantUnknown(t, err)
}

// TestStrictAboutTheDisk: the setting is about the level that DURABILITY names, whichever it is. A server whose disk
// confirms nothing takes no order, and takes them soon after somebody has corrected it.
func TestStrictAboutTheDisk(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t, "appendfsync no")
	r := pipelinetest.New(t, pipelinetest.Options{
		RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1000},
		Admission: admission.Options{Durability: fsync, DurabilityStrict: true},
	})
	before := r.Dump(r.Sale)
	for _, user := range users("refused", 5) {
		_, err := r.Try(pipeline.OrderRequest{UserID: user, Quantity: 1})
		wantRefused(t, user, err)
	}
	if got := r.Dump(r.Sale); got != before {
		t.Errorf("got %s, want nothing changed: %s", got, before)
	}
	if err := r.Redis.ConfigSet(r.Ctx(), "appendfsync", "always").Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, pipelinetest.CallLimit, "an order to be accepted", func() bool {
		got, err := r.Try(pipeline.OrderRequest{UserID: "ann", Quantity: 1, IdempotencyKey: "k"})
		return err == nil && got.Receipt.Durability == fsync
	})
}

// TestOneServerThatConfirmsNothingStopsNoOther: each node of a cluster is strict for itself.
func TestOneServerThatConfirmsNothingStopsNoOther(t *testing.T) {
	t.Parallel()
	r, isDurable := twoServers(t, admission.Options{DurabilityStrict: true})
	onDurable := map[bool]int{}
	for _, user := range users("buyer", 40) {
		here := isDurable(user)
		onDurable[here]++
		got, err := r.Try(pipeline.OrderRequest{UserID: user, Quantity: 1})
		if !here {
			wantRefused(t, user, err)
			continue
		}
		if err != nil || got.Receipt.Durability != fsync {
			t.Errorf("%s: got %+v, %v, want an accept at fsync", user, got, err)
		}
	}
	if onDurable[true] == 0 || onDurable[false] == 0 {
		t.Errorf("got %v buyers by server, want some on each", onDurable)
	}
}
