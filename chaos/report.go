package chaos

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/internal/buyers"
	"sluice/internal/table"
	"sluice/pipeline"
	"sluice/pipeline/audit"
)

// Report is what a run has shown.
type Report struct {
	OK        bool                   `json:"ok"`
	Seed      uint64                 `json:"seed"`
	Took      seconds                `json:"took_seconds"` // of the faults
	Settling  seconds                `json:"settling_seconds"`
	Requests  int                    `json:"requests"`
	Answers   map[string]int         `json:"answers"`
	Accepts   int                    `json:"accepts"` // orders that an answer named to their buyer
	Kills     int                    `json:"kills"`   // of processes and servers, with SIGKILL
	Unknown   int                    `json:"unknown"` // rows of buyers who don't know of them: their answers were lost
	TakenBack int                    `json:"taken_back"`
	Poisons   int                    `json:"poisons"`
	Comeback  comebackReport         `json:"comeback"`
	Faults    []faultReport          `json:"faults"`
	Pairs     []pairReport           `json:"pairs"`
	Counts    map[buyers.Verdict]int `json:"counts"`
	Wrong     []string               `json:"wrong,omitempty"` // what the verdict rests on besides the counts
	Findings  []string               `json:"findings,omitempty"`
	Timeline  []string               `json:"timeline,omitempty"` // when something is wrong
	Warnings  map[string]int         `json:"warnings"`
	Lines     []string               `json:"lines,omitempty"` // last warnings of the processes, when something is wrong
}

// seconds is a time in seconds.
type seconds float64

// faultReport is what one kind of fault did.
type faultReport struct {
	Kind  kind `json:"kind"`
	Times int  `json:"times"` // it was brought about
	Hits  int  `json:"hits"`  // what that came to: processes killed, connections closed, replies lost
	// Silence is the longest time without any 202, from the fault's beginning until two seconds after its end.
	Silence seconds `json:"silence_seconds"`
	// Complete is how long after the end of the fault everything that was accepted until then was in Postgres.
	CompleteMedian seconds `json:"complete_median_seconds"`
	CompleteMax    seconds `json:"complete_max_seconds"`
}

// prove compares the history with the stores. Its error says why that could not be done.
func (r *run) prove(ctx context.Context) (*buyers.Proof, *buyers.Stores, error) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	stores, err := buyers.Reader{
		Postgres: r.system.pool, Redis: r.system.rdb, Sales: r.saleIDs(),
		Slots: true,
	}.Read(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the stores: %w", err)
	}
	return buyers.Prove(r.history, stores, buyers.Terms{Lossy: r.lossy(), Blind: r.blind()}), stores, nil
}

// audit has the pipeline audit each sale, and returns what is not clean and exact.
func (r *run) audit(ctx context.Context) []string {
	auditor := audit.NewAuditor(r.system.rdb, pipeline.DefaultKeys, r.store)
	found := make([]string, len(r.sales))
	var audits sync.WaitGroup // one that finds something looks for seconds
	for i, sale := range r.sales {
		audits.Go(func() {
			report, err := auditor.Audit(ctx, sale)
			switch {
			case err != nil:
				found[i] = fmt.Sprintf("audit of %s: %v", sale.ID, err)
			case !report.Exact || !report.Clean():
				found[i] = fmt.Sprintf("audit of %s: %q (exact: %t)", sale.ID, report.Findings, report.Exact)
			}
		})
	}
	audits.Wait()
	return slices.DeleteFunc(found, func(text string) bool { return text == "" })
}

// lossy reports whether a store lost data in this run.
func (r *run) lossy() bool {
	return slices.ContainsFunc(r.scheduler.faults, func(f injected) bool {
		t := traits[f.Kind]
		return (t.loses || t.mislays) && f.hits > 0
	})
}

// blind are the split brains: an API that still takes the old primary for the new one goes by its stock. It can accept
// nothing that stands, but what it says is sold out may be for sale again at the new one.
func (r *run) blind() (spans []buyers.Span) {
	for _, f := range r.scheduler.faults {
		if f.Kind == splitBrain {
			spans = append(spans, buyers.Span{From: f.began.Sub(r.history.Began), To: f.ended.Sub(r.history.Began)})
		}
	}
	return spans
}

// maxDescribed findings at most; each takes a look through the whole history.
const maxDescribed = 20

// report proves, and puts together what the run has shown.
func (r *run) report(ctx context.Context) (*Report, error) {
	proof, stores, err := r.prove(ctx)
	if err != nil {
		return nil, err
	}
	tally := r.history.Tally()
	report := &Report{
		Seed: r.opts.Seed, Took: inSeconds(r.took), Settling: inSeconds(r.settling), Requests: tally.Requests,
		Answers: map[string]int{}, Accepts: proof.Promised, Unknown: proof.Unknown, TakenBack: proof.Refused,
		Comeback: r.system.comeback.report(),
		Poisons:  r.history.Poisons(), Counts: proof.Counts(), Wrong: r.audit(ctx), Warnings: r.system.warnings.Counts(),
	}
	for outcome, n := range tally.Outcomes {
		if n > 0 {
			report.Answers[answerName(buyers.Outcome(outcome))] += n
		}
	}
	report.Wrong = append(report.Wrong, r.system.crashed()...)
	report.Wrong = append(report.Wrong, r.history.Strange()...)
	if r.unsettled != "" {
		report.Wrong = append(report.Wrong, "not settled: "+r.unsettled)
	}
	report.Faults, report.Kills = r.faults(stores.Orders)
	report.Pairs = r.pairs()
	for _, f := range report.Faults {
		if f.Hits == 0 && r.opts.needs(f.Kind) {
			report.Wrong = append(report.Wrong, fmt.Sprintf("%s never happened", f.Kind))
		}
	}
	if report.OK = len(report.Wrong) == 0 && len(proof.Findings) == 0; report.OK {
		return report, nil
	}
	for _, f := range proof.Findings[:min(len(proof.Findings), maxDescribed)] {
		report.Findings = append(report.Findings, proof.Describe(f))
	}
	for _, f := range r.scheduler.faults {
		report.Timeline = append(report.Timeline,
			fmt.Sprintf("%s to %s %s: %d hits %s", buyers.Clock(f.began.Sub(r.history.Began)),
				buyers.Clock(f.ended.Sub(r.history.Began)), f.step, f.hits, inParentheses(f.err)))
	}
	report.Lines = r.system.lines()
	return report, nil
}

func answerName(o buyers.Outcome) string {
	switch o {
	case buyers.Accepted:
		return "202 " + o.Code()
	case buyers.AlreadyOrdered, buyers.SoldOut:
		return "409 " + o.Code()
	default:
		return buyers.NoAnswer.Code()
	}
}

func inSeconds(d time.Duration) seconds { return seconds(d.Round(time.Millisecond).Seconds()) }

// faults adds up what each kind did.
func (r *run) faults(orders []buyers.Order) (list []faultReport, kills int) {
	for _, kind := range kinds {
		if !r.opts.takes(kind) {
			continue
		}
		f := faultReport{Kind: kind}
		var completes []time.Duration
		for _, d := range r.scheduler.faults {
			if d.Kind != kind || d.hits == 0 {
				continue
			}
			f.Times++
			f.Hits += d.hits
			f.Silence = max(f.Silence, inSeconds(r.silence(d)))
			completes = append(completes, complete(orders, d))
			if traits[kind].kills {
				kills += d.hits
			}
		}
		if slices.Sort(completes); len(completes) > 0 {
			f.CompleteMedian, f.CompleteMax = inSeconds(completes[len(completes)/2]), inSeconds(completes[len(completes)-1])
		}
		list = append(list, f)
	}
	return list, kills
}

// silenceTail is how long after its end a silence still counts as a fault's.
const silenceTail = 2 * time.Second

func (r *run) silence(d injected) time.Duration {
	from, to := d.began.Sub(r.history.Began), d.ended.Sub(r.history.Began)+silenceTail
	var longest time.Duration
	for _, one := range r.history.Silences() {
		if one.To > from && one.From < to {
			longest = max(longest, one.To-one.From)
		}
	}
	return longest
}

// complete is how long after a fault's end the last order that was accepted during it was in Postgres. Both times are
// by the stores' clocks: an order whose times can't be right, because one of those was wrong then, is left out.
func complete(orders []buyers.Order, d injected) time.Duration {
	var last time.Duration
	now := time.Now()
	for i := range orders {
		r := &orders[i]
		if r.PersistedAt.After(now) || r.PersistedAt.Before(r.AcceptedAt) {
			continue
		}
		if r.AcceptedAt.After(d.began) && r.AcceptedAt.Before(d.ended) {
			last = max(last, r.PersistedAt.Sub(d.ended))
		}
	}
	return last
}

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	say := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	faults := table.New("FAULT", ">TIMES", ">HITS", ">NO 202 FOR, AT MOST", ">ALL PERSISTED AFTER, MEDIAN", ">AT MOST")
	for _, f := range r.Faults {
		faults.Row(string(f.Kind), f.Times, f.Hits, f.Silence.String(), f.CompleteMedian.String(),
			f.CompleteMax.String())
	}
	if err := faults.Write(w, ""); err != nil {
		return err
	}
	say("")
	if err := r.writePairs(w); err != nil {
		return err
	}
	say("")
	counts := table.New("", ">")
	counts.Row("seed", fmt.Sprint(r.Seed))
	counts.Row("faults injected for", r.Took.String())
	counts.Row("everything persisted after the end", r.Settling.String())
	counts.Row("processes killed", r.Kills)
	counts.Row("requests", r.Requests)
	for _, code := range slices.Sorted(maps.Keys(r.Answers)) {
		counts.Row("  "+code, r.Answers[code])
	}
	counts.Row("orders accepted", r.Accepts)
	counts.Row("  told, then rejected with a letter", r.TakenBack)
	r.Comeback.rows(counts)
	counts.Row("orders whose buyer never heard of them", r.Unknown)
	counts.Row("poison entries", r.Poisons)
	for _, v := range buyers.Verdicts {
		counts.Row(string(v), r.Counts[v])
	}
	if err := counts.Write(w, ""); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"Wrong", r.Wrong}, {"Findings", r.Findings}, {"Timeline", r.Timeline}, {"Last warnings", r.Lines}} {
		if len(part.lines) > 0 {
			say("\n%s:", part.title)
		}
		for _, line := range part.lines {
			say("  %s", line)
		}
	}
	if r.OK {
		say("\n✓ Nothing was lost, sold twice or leaked.")
	} else {
		say("\n✗ Something is wrong; CHAOS_SEED=%d makes the same plan again.", r.Seed)
	}
	return nil
}

// String is the time with milliseconds.
func (s seconds) String() string { return fmt.Sprintf("%.3f s", float64(s)) }
