package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/operator"
	"sluice/pipeline/pipelinetest"
)

const salePath = "/console/sales/drop-1"

// TestChangesOfASale: each shows first what it would do and does nothing, then does that once, under the name of the
// token and with its reason.
func TestChangesOfASale(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 10, PaymentWindow: time.Hour}})
	r.AdmitMany("buyer", 3)
	r.Persist(r.Events(r.Sale)...)
	closes := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Minute)
	b := r.as("ann", operator.Operate)
	version := int64(1)
	for _, test := range []struct {
		path, typed string
		says        []string // by the dry run
		action      string   // in the audit log
		check       func(s *pipeline.Sale) bool
	}{
		{
			"pause", "",
			[]string{"3 units that await payment", "Nobody loses an order"},
			"pause",
			func(s *pipeline.Sale) bool { return s.State == pipeline.SalePaused },
		},
		{
			"resume", "",
			[]string{"7 units can be ordered"},
			"resume",
			func(s *pipeline.Sale) bool { return s.State == pipeline.SaleActive },
		},
		{
			"restock?add=5", "",
			[]string{"Units in all 10 15", "Free 7 12"},
			"restock",
			func(s *pipeline.Sale) bool { return s.Total == 15 },
		},
		{
			"reschedule?closes=" + closes.Format("2006-01-02T15:04"), "",
			[]string{closes.Format("2 Jan 2006, 15:04")},
			"reschedule", func(s *pipeline.Sale) bool { return s.ClosesAt.Equal(closes) },
		},
		{
			"close", "drop-1",
			[]string{"can't be undone", "12 units stay unsold", "3 units await payment"},
			"close",
			func(s *pipeline.Sale) bool { return s.State == pipeline.SaleClosed },
		},
	} {
		path := salePath + "/change/" + test.path
		b.want(http.StatusOK, b.get(path), append(test.says, "nothing has been done yet")...)
		if got := r.stored("drop-1"); got.Version != version || test.check(got) {
			t.Fatalf("%s: the dry run has changed the sale: %+v", test.path, got)
		}
		form := b.plan(path, "because of "+test.action)
		form.Set("typed", test.typed)
		post, _, _ := strings.Cut(path, "?")
		var twice sync.WaitGroup // as by a double click
		answers := make([]answer, 4)
		for i := range answers {
			twice.Go(func() { answers[i] = b.post(post, form) })
		}
		twice.Wait()
		later := b.post(post, form)
		for _, got := range append([]answer{later}, answers...) {
			if want := salePath + "?done=" + test.action; got.status != http.StatusSeeOther || got.location != want {
				t.Errorf("%s: got %d to %q: %s", test.path, got.status, got.location, textOf(got.body))
			}
		}
		version++
		if got := r.stored("drop-1"); got.Version != version || !test.check(got) {
			t.Fatalf("%s: got %+v, want version %d", test.path, got, version)
		}
		r.wantLine(test.action, "token:ann", "because of "+test.action, int(version))
	}
	b.want(http.StatusOK, b.get(salePath+"?done=close"), "The sale is closed", "“because of pause”", "token:ann")
	b.want(http.StatusOK, b.get(salePath+"/change/pause"), "closed, which is final")
	b.want(http.StatusOK, b.get("/console/log?actor=token:ann&action=restock"), "“because of restock”", "10 → 15")
}

// wantLine expects the newest line about the sale, and how many there are.
func (r *rig) wantLine(action, actor, reason string, lines int) {
	r.Helper()
	log := r.log("drop-1")
	if len(log) != lines || log[0].Action != action || log[0].Actor != actor || reasonOf(&log[0]) != reason {
		r.Errorf("got %d lines, the newest %+v, want %d and %s by %s: %s", len(log), log[0], lines, action, actor, reason)
	}
}

func reasonOf(e *auditlog.Entry) string {
	_, after, found := strings.Cut(string(e.Detail), `"reason": "`)
	if !found {
		_, after, _ = strings.Cut(string(e.Detail), `"reason":"`)
	}
	reason, _, _ := strings.Cut(after, `"`)
	return reason
}

// TestWhatIsNotDone: without a reason, without the name typed, of a sale that has changed since, and what can't be
// meant.
func TestWhatIsNotDone(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{})
	b := r.as("ann", operator.Operate)
	with := func(form url.Values, name, value string) url.Values {
		form.Set(name, value)
		return form
	}
	const pause, shut = salePath + "/change/pause", salePath + "/change/close"
	for name, test := range map[string]struct {
		path   string
		form   url.Values
		status int
		says   string
	}{
		"no reason":       {pause, b.plan(pause, " "), 400, "say why"},
		"a long reason":   {pause, b.plan(pause, strings.Repeat("a", 1001)), 400, "say why"},
		"two lines":       {pause, b.plan(pause, "a\nb"), 400, "say why"},
		"a huge form":     {pause, b.plan(pause, strings.Repeat("a", 40_000)), 413, ""},
		"not typed":       {shut, b.plan(shut, "it is over"), 400, "what you typed is not"},
		"typed wrong":     {shut, with(b.plan(shut, "it is over"), "typed", "drop-2"), 400, "what you typed is not"},
		"no key":          {pause, with(b.plan(pause, "x"), "key", ""), 400, "idempotency key"},
		"no version":      {pause, with(b.plan(pause, "x"), "version", ""), 400, "not complete"},
		"another version": {pause, with(b.plan(pause, "x"), "version", "7"), 409, "is at version 1"},
		"no such change":  {salePath + "/change/explode", b.plan(pause, "x"), 404, "no such change"},
		"no such sale":    {"/console/sales/nope/change/pause", b.plan(pause, "x"), 404, ""},
		"no units":        {salePath + "/change/restock", b.plan(pause, "x"), 400, "units to add"},
		"less than none":  {salePath + "/change/restock", with(b.plan(pause, "x"), "add", "-1"), 400, "units to add"},
		"too many units":  {salePath + "/change/restock", with(b.plan(pause, "x"), "add", "2147483648"), 400, "units to add"},
		"no time": {
			salePath + "/change/reschedule", with(b.plan(pause, "x"), "closes", "soon"), 400, "a date and a time",
		},
		"a wrong window": {
			salePath + "/change/reschedule", with(b.plan(pause, "x"), "closes", "1999-01-01T00:00"), 400, "not after it opens",
		},
	} {
		got := b.post(test.path, test.form)
		if got.status != test.status || !strings.Contains(strings.ToLower(textOf(got.body)), strings.ToLower(test.says)) {
			t.Errorf("%s: got %d, want %d: %s", name, got.status, test.status, textOf(got.body))
		}
	}
	if got := r.stored("drop-1"); got.Version != 1 || len(r.log("drop-1")) != 1 {
		t.Errorf("something was done: %+v", got)
	}
	// What was refused keeps its answer, and a key serves one request.
	form := with(b.plan(pause, "x"), "version", "7")
	b.want(http.StatusConflict, b.post(pause, form))
	b.want(http.StatusConflict, b.post(pause, form), "is at version 1")
	b.want(http.StatusConflict, b.post(pause, with(form, "version", "1")), "used before")
}

// TestWhereTheUnitsAre: the bar has every unit once, wherever it is.
func TestWhereTheUnitsAre(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 1000, PaymentWindow: time.Hour}})
	b := r.as("ann", operator.Read)
	b.want(http.StatusOK, b.get(salePath), "free 1,000")
	receipts := r.AdmitMany("buyer", 6)
	b.want(http.StatusOK, b.get(salePath), "in flight 6", "awaiting payment 0", "free 994", "6 orders accepted so far")
	r.Persist(r.Events(r.Sale)...)
	r.pay(receipts[0].OrderID)
	r.pay(receipts[1].OrderID)
	r.End(receipts[2].OrderID)
	r.eventually("the page to show them all", func() bool {
		text := textOf(b.get(salePath).body)
		for _, part := range []string{"paid 2 ", "awaiting payment 3 ", "in flight 0 ", "on the move 1 ", "free 994 "} {
			if !strings.Contains(text, part) {
				return false
			}
		}
		return true
	})
	b.want(http.StatusOK, b.get(salePath+"/audit"), "Not one unit was lost or sold twice", "Units in all 1,000", "Drift 0")
	r.Exec(1, `update sales set sold = sold + 2 where id = 'drop-1'`)
	b.want(http.StatusOK, b.get(salePath), "The books don't balance: −2")
	b.want(http.StatusOK, b.get(salePath+"/audit"), "Wrong")
}
