package webhook_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/webhook"
)

// waitAgain waits until n events have arrived once more, and returns their subjects in that order.
func (r *receiver) waitAgain(n int) (subjects []string) {
	r.t.Helper()
	testkit.Eventually(r.t, patient, fmt.Sprintf("%d events to arrive once more", n), func() bool {
		_, _, again := r.counts()
		return again >= n
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.repeats {
		subjects = append(subjects, e.Subject)
		if !r.seen[e.ID] || e.Position == "" {
			r.t.Errorf("%+v came with another id, or without its position", e)
		}
	}
	r.repeats, r.again = nil, 0
	return subjects
}

func (r *rig) passed(id int64, orders int) {
	r.Helper()
	testkit.Eventually(r, patient, "the deliveries to be noted", func() bool { return r.endpoint(id).Backlog == 0 })
	if orders > 0 && r.endpoint(id).DeliveredAt.IsZero() {
		r.Fatal("nothing was delivered")
	}
}

// delivered is a rig with a receiver that has got the events of so many orders of the sale drop. The deliverer goes on
// until stop is called.
func delivered(t *testing.T, orders int) (r *rig, in *receiver, e webhook.Endpoint, ids []string, stop func()) {
	t.Helper()
	r = newRig(t)
	r.sale("drop", 100)
	in = newReceiver(t)
	e = in.register(r)
	ids = r.orders("drop", orders)
	stop = r.deliverer(r.store, patient)
	in.wait(orders)
	r.passed(e.ID, orders)
	return r, in, e, ids, stop
}

// TestResend: one event, and a range of them, arrive once more under the ids that they had, and nothing else does.
func TestResend(t *testing.T) {
	r, in, e, ids, _ := delivered(t, 5)
	resend := func(request webhook.ResendRequest, want int) {
		t.Helper()
		got, err := r.endpoints.Resend(t.Context(), "ann", e.ID, request)
		if err != nil || got.Events != want || got.More {
			t.Errorf("resend: got %+v, %v, want %d events", got, err, want)
		}
	}
	resend(webhook.ResendRequest{EventID: in.first[3].ID}, 1)
	wantSubjects(t, in.waitAgain(1), ids[3:4])
	from, err := strconv.ParseInt(in.first[1].Position, 10, 64)
	must(t, err)
	resend(webhook.ResendRequest{From: from, To: from + 2}, 3)
	wantSubjects(t, in.waitAgain(3), ids[1:4])
	resend(webhook.ResendRequest{From: 1, OrderID: ids[4], Type: webhook.TypeOrderConfirmed}, 1)
	wantSubjects(t, in.waitAgain(1), ids[4:])
	resend(webhook.ResendRequest{From: 1, Type: webhook.TypeOrderPaid}, 0)
	// What is new arrives after all that, and alone.
	more := r.orders("drop", 1)
	in.wait(6)
	wantSubjects(t, in.subjects(), append(ids, more...))
	testkit.Eventually(t, patient, "nothing to be left to resend", func() bool { return r.count(`resends`) == 0 })
	if _, first, again := in.counts(); first != 6 || again != 0 {
		t.Errorf("%d events arrived, %d once more; want 6 and 0", first, again)
	}
	if got := r.count(`audit_log where action = 'resend-events'`); got != 3 {
		t.Errorf("the audit log has %d lines, want 3", got)
	}
}

func (r *rig) count(of string) (n int) {
	r.Helper()
	must(r, r.raw.QueryRow(r.Context(), `select count(*) from `+of).Scan(&n))
	return n
}

// TestResendOutlivesTrouble: a receiver that fails gets what is resent again.
func TestResendOutlivesTrouble(t *testing.T) {
	r, in, e, ids, stop := delivered(t, 3)
	stop()
	in.answer = func(n int, w http.ResponseWriter, _ *http.Request) {
		if n%2 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
	for range 2 { // a call whose answer was lost
		_, err := r.endpoints.Resend(t.Context(), "ann", e.ID, webhook.ResendRequest{From: 1})
		must(t, err)
	}
	r.deliverer(r.store, patient)
	got := in.waitAgain(3)
	slices.Sort(got) // one that failed comes later
	wantSubjects(t, got, slices.Sorted(slices.Values(ids)))
	// What is not kept any longer, and an endpoint that is gone, leave nothing behind.
	r.exec(`insert into resends (endpoint_id, position, event)
		select $1, position + 1000, id from outbox where position <= 2`, e.ID)
	r.exec(`delete from outbox`)
	if got := r.count(`resends`); got != 0 {
		t.Errorf("%d events are to be resent that are gone", got)
	}
}

// TestAResendThatFailsIsAlone: an event that a receiver does not take once more neither delays what is new nor disables
// the endpoint; an operator who leaves out the next event means the one that is new; and after a day it is given up.
func TestAResendThatFailsIsAlone(t *testing.T) {
	r, in, e, ids, stop := delivered(t, 2)
	stop()
	refused := map[string]bool{in.first[0].ID: true}
	var tried atomic.Int64
	in.answer = func(_ int, w http.ResponseWriter, request *http.Request) {
		if refused[request.Header.Get("webhook-id")] {
			tried.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
	for _, event := range in.first[:2] {
		_, err := r.endpoints.Resend(t.Context(), "ann", e.ID, webhook.ResendRequest{EventID: event.ID})
		must(t, err)
	}
	stop = r.deliverer(r.store, patient)
	wantSubjects(t, in.waitAgain(1), ids[1:])
	testkit.Eventually(t, patient, "some attempts", func() bool { return tried.Load() > 5 })
	more := r.orders("drop", 3)
	in.wait(5)
	wantSubjects(t, in.subjects(), append(ids, more...))
	r.passed(e.ID, 3)
	stop()
	if got := r.endpoint(e.ID); got.Disabled() || got.Attempts != 0 || !got.FailingSince.IsZero() || got.LastError != "" {
		t.Errorf("the endpoint counts the failures of a resend: %+v", got)
	}

	// The next event that is new is left out; the one to be resent is not.
	r.orders("drop", 1)
	_, err := r.store.SequenceEvents(t.Context(), 10)
	must(t, err)
	_, err = r.store.EndpointRegistry().DisableEndpoint(t.Context(), "ann", e.ID)
	must(t, err)
	_, err = r.store.EndpointRegistry().EnableEndpoint(t.Context(), "ann", e.ID, true)
	must(t, err)
	if got := r.endpoint(e.ID); got.Backlog != 0 || r.count(`resends`) != 1 {
		t.Errorf("left out the next event: backlog %d, %d to be resent, want 0 and 1", got.Backlog, r.count(`resends`))
	}

	r.exec(`update resends set failing_since = now() - interval '25 hours'`)
	r.deliverer(r.store, patient)
	testkit.Eventually(t, patient, "the event to be given up", func() bool { return r.count(`resends`) == 0 })
	if got := r.endpoint(e.ID); got.Missed != 1 || got.Disabled() {
		t.Errorf("missed %d, disabled %t; want 1, false", got.Missed, got.Disabled())
	}
}

// TestReplay: a receiver that lost its data gets everything from a position on, in the order in which it came, and what
// is new after it, while somebody delivers to it all the time.
func TestReplay(t *testing.T) {
	r, in, e, ids, _ := delivered(t, 8)
	from, err := strconv.ParseInt(in.first[2].Position, 10, 64)
	must(t, err)
	_, err = r.endpoints.Replay(t.Context(), "ann", e.ID, from)
	must(t, err)
	more := r.orders("drop", 1)
	wantSubjects(t, in.waitAgain(6), ids[2:])
	in.wait(9)
	wantSubjects(t, in.subjects(), append(ids, more...))
	r.passed(e.ID, 9)
	for _, position := range []int64{from + 100, 0} {
		_, err := r.endpoints.Replay(t.Context(), "ann", e.ID, position)
		if kind := pipeline.KindOf(err); kind != pipeline.KindConflict && kind != pipeline.KindInvalid {
			t.Errorf("replay from %d: got %v", position, err)
		}
	}
	r.exec(`delete from outbox where position < $1`, from)
	_, err = r.endpoints.Replay(t.Context(), "ann", e.ID, from-1)
	if pipeline.KindOf(err) != pipeline.KindConflict {
		t.Errorf("replay of what is gone: got %v", err)
	}
	if got := r.count(`audit_log where action = 'replay-events'`); got != 1 {
		t.Errorf("the audit log has %d lines, want 1", got)
	}
}
