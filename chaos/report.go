package chaos

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/internal/table"
	"sluice/pipeline"
)

// Report is what a run has shown.
type Report struct {
	OK        bool            `json:"ok"`
	Seed      uint64          `json:"seed"`
	Took      Seconds         `json:"took_seconds"` // of the faults
	Settling  Seconds         `json:"settling_seconds"`
	Requests  int             `json:"requests"`
	Answers   map[string]int  `json:"answers"`
	Accepts   int             `json:"accepts"` // orders that a buyer was told of
	Kills     int             `json:"kills"`   // of processes and servers, with SIGKILL
	Unknown   int             `json:"unknown"` // rows of buyers who never heard of them: their answers were lost
	TakenBack int             `json:"taken_back"`
	Poisons   int             `json:"poisons"`
	Faults    []FaultReport   `json:"faults"`
	Counts    map[Verdict]int `json:"counts"`
	Wrong     []string        `json:"wrong,omitempty"` // what the verdict rests on besides the counts
	Findings  []string        `json:"findings,omitempty"`
	Timeline  []string        `json:"timeline,omitempty"` // when something is wrong
	Warnings  map[string]int  `json:"warnings"`
	Lines     []string        `json:"lines,omitempty"` // last warnings of the processes, when something is wrong
}

// Seconds is a time in seconds.
type Seconds float64

// FaultReport is what one kind of fault did.
type FaultReport struct {
	Kind  Kind `json:"kind"`
	Times int  `json:"times"` // it was brought about
	Hits  int  `json:"hits"`  // what that came to: processes killed, connections closed, replies lost
	// Silence is the longest time without any 202, from the fault's beginning until two seconds after its end.
	Silence Seconds `json:"silence_seconds"`
	// Complete is how long after the end of the fault everything that was accepted until then was in Postgres.
	CompleteMedian Seconds `json:"complete_median_seconds"`
	CompleteMax    Seconds `json:"complete_max_seconds"`
}

// prove compares the history with the stores. Its error says why that could not be done.
func (s *stage) prove(ctx context.Context) (*proof, error) {
	b, err := s.readBooks(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the books: %w", err)
	}
	var ids []string
	for _, sale := range s.sales {
		ids = append(ids, sale.ID)
	}
	return prove(s.history.facts, s.history.poisons, ids, b, s.lost()), nil
}

// audit has the pipeline audit each sale, and returns what is not clean and exact.
func (s *stage) audit(ctx context.Context) []string {
	auditor := pipeline.NewAuditor(s.cast.rdb, pipeline.DefaultKeys, s.store)
	found := make([]string, len(s.sales))
	var audits sync.WaitGroup // one that finds something looks for seconds
	for i, sale := range s.sales {
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

// lost reports whether Redis lost data in this run.
func (s *stage) lost() bool {
	return slices.ContainsFunc(s.director.deeds, func(d deed) bool { return traits[d.Kind].loses && d.hits > 0 })
}

// report proves and tells.
func (s *stage) report(ctx context.Context) (*Report, error) {
	p, err := s.prove(ctx)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Seed: s.opts.Seed, Took: seconds(s.took), Settling: seconds(s.settling), Requests: len(s.history.facts),
		Answers: map[string]int{}, Accepts: p.promised, Unknown: p.unknownWithRow, TakenBack: p.refusedLater,
		Poisons: len(s.history.poisons), Counts: p.counts(), Wrong: s.audit(ctx), Warnings: s.cast.warnings,
	}
	for _, f := range s.history.facts {
		r.Answers[f.told.String()]++
	}
	r.Wrong = append(r.Wrong, s.cast.crashed()...)
	r.Wrong = append(r.Wrong, s.history.odd...)
	if s.unsettled != "" {
		r.Wrong = append(r.Wrong, "not settled: "+s.unsettled)
	}
	r.Faults, r.Kills = s.faults(p.books)
	for _, f := range r.Faults {
		if f.Hits == 0 && !s.opts.Calm {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s never happened", f.Kind))
		}
	}
	r.OK = len(r.Wrong) == 0 && len(p.findings) == 0
	if r.OK {
		return r, nil
	}
	for _, f := range p.findings[:min(len(p.findings), maxExplained)] {
		r.Findings = append(r.Findings, s.explain(f, p))
	}
	for _, d := range s.director.deeds {
		r.Timeline = append(r.Timeline, fmt.Sprintf("%s to %s %s: %d hits %s", s.clock(d.began.Sub(s.history.began)),
			s.clock(d.ended.Sub(s.history.began)), d.Step, d.hits, wrong(d.err)))
	}
	r.Lines = s.cast.lines
	return r, nil
}

func seconds(d time.Duration) Seconds { return Seconds(d.Round(time.Millisecond).Seconds()) }

// faults adds up what each kind did.
func (s *stage) faults(b *books) (list []FaultReport, kills int) {
	for _, kind := range kinds {
		if s.opts.Lossless && traits[kind].loses || s.opts.Calm {
			continue
		}
		f := FaultReport{Kind: kind}
		var completes []time.Duration
		for _, d := range s.director.deeds {
			if d.Kind != kind || d.hits == 0 {
				continue
			}
			f.Times++
			f.Hits += d.hits
			f.Silence = max(f.Silence, seconds(s.silence(d)))
			completes = append(completes, complete(b, d))
			if traits[kind].kills {
				kills++
			}
		}
		if slices.Sort(completes); len(completes) > 0 {
			f.CompleteMedian, f.CompleteMax = seconds(completes[len(completes)/2]), seconds(completes[len(completes)-1])
		}
		list = append(list, f)
	}
	return list, kills
}

// silenceTail is how long after its end a silence still counts as a fault's.
const silenceTail = 2 * time.Second

func (s *stage) silence(d deed) time.Duration {
	from, to := d.began.Sub(s.history.began), d.ended.Sub(s.history.began)+silenceTail
	var longest time.Duration
	for _, one := range s.history.silence {
		if one.to > from && one.from < to {
			longest = max(longest, one.to-one.from)
		}
	}
	return longest
}

// complete is how long after a fault's end the last order that was accepted during it was in Postgres.
func complete(b *books, d deed) time.Duration {
	var last time.Duration
	for i := range b.rows {
		r := &b.rows[i]
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
		faults.Row(string(f.Kind), f.Times, f.Hits, f.Silence.String(), f.CompleteMedian.String(), f.CompleteMax.String())
	}
	if err := faults.Write(w, ""); err != nil {
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
	counts.Row("  rejected later, with a letter", r.TakenBack)
	counts.Row("orders whose buyer never heard of them", r.Unknown)
	counts.Row("poison entries", r.Poisons)
	for _, v := range Verdicts {
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
func (s Seconds) String() string { return fmt.Sprintf("%.3f s", float64(s)) }
