package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/cmd/sluice/demo"
	"sluice/cmd/sluice/table"
)

type demoCmd struct {
	Requests int    `placeholder:"N" help:"HTTP requests in all, 200 to 1000000; default 20000."`
	Buyers   int    `placeholder:"N" help:"Buyers, at most half of the requests; default two fifths of them."`
	Stock    int    `placeholder:"UNITS" help:"Units for sale, 10 or more, at most one per buyer; default 1000."`
	Rate     int    `placeholder:"N" help:"Requests per second at most, 100 to 50000; default 4000."`
	Seed     uint64 `placeholder:"N" help:"Seed of everything random; default: a new one each time."`
}

// Run plays the demo. With --json the story goes to stderr and the result to stdout.
func (c *demoCmd) Run(a *app) error {
	story := a.out
	if a.json {
		story = a.err
	}
	began := time.Now()
	result, err := demo.Run(a.ctx, demo.Options{
		Requests: c.Requests, Buyers: c.Buyers, Stock: c.Stock, Rate: c.Rate, Seed: c.Seed,
	}, story)
	if err != nil && a.ctx.Err() != nil {
		sayf(a.err, "sluice: interrupted; the demo's servers and processes are gone")
		return errFound
	}
	if result != nil {
		if printErr := a.printDemo(result, time.Since(began)); printErr != nil {
			return printErr
		}
	}
	if err != nil {
		return fmt.Errorf("the demo broke off: %w", err)
	}
	if !result.OK {
		return errFound
	}
	return nil
}

func (a *app) printDemo(r *demo.Result, took time.Duration) error {
	if a.json {
		return a.printJSON(struct {
			*demo.Result
			Audit auditView `json:"audit"`
		}{r, viewAudit(r.Audit)})
	}
	if err := printDemoTables(a.out, r); err != nil {
		return err
	}
	if len(r.Complaints) > 0 && !r.OK {
		sayf(a.out, "\nWhat the API and the workers complained about:\n  %s", strings.Join(r.Complaints, "\n  "))
	}
	if r.OK {
		sayf(a.out, "\n✓ Nothing was lost, sold twice or leaked. (%s; everything is cleaned up)", age(took))
	} else {
		sayf(a.out, "\n✗ Something is wrong; the demo can be repeated with --seed %d. (%s)", r.Seed, age(took))
	}
	return nil
}

func printDemoTables(w io.Writer, r *demo.Result) error {
	checks := table.New("", "", "")
	for _, c := range r.Checks {
		checks.Row(mark(c.OK), c.Name, c.Detail)
	}
	answers := table.New("", ">", "")
	for _, code := range slices.Sorted(maps.Keys(r.Answers)) {
		answers.Row(code, r.Answers[code], meaning(code, r))
	}
	answers.Row("no answer", r.Abandoned, "given up by the client, which asked again with the same key")
	speed := table.New("", ">P50", ">P99", ">MAX")
	speed.Row("answer, as clients saw it", ms(r.Latency.P50), ms(r.Latency.P99), ms(r.Latency.Max))
	speed.Row("accept until row in Postgres", ms(r.PersistLag.P50), ms(r.PersistLag.P99), ms(r.PersistLag.Max))
	if err := checks.Write(w, "   "); err != nil {
		return err
	}
	sayf(w, "\n   What %s requests were told:", table.Number(int64(r.Requests)))
	if err := answers.Write(w, "   "); err != nil {
		return err
	}
	sayf(w, "\n   How fast, at %s requests per second on this machine (orders of the dead worker aside):", table.Number(int64(r.PerSecond)))
	if err := speed.Write(w, "   "); err != nil {
		return err
	}
	sayf(w, "\n   The audit (units; sluice audit shows it at any time):")
	return printAudits(w, []auditView{viewAudit(r.Audit)}, "   ")
}

func meaning(code string, r *demo.Result) string {
	switch code {
	case "accepted":
		return fmt.Sprintf("202: %s orders, and %s times the same answer to the same key",
			table.Number(int64(r.Answers[code]-r.Replays)), table.Number(int64(r.Replays)))
	case "already-ordered":
		return "409: the buyer has an order, and is told which"
	case "sold-out":
		return "409: nothing left"
	case "sale-not-open":
		return "409: too early, by Redis' clock"
	case "sale-closed":
		return "409: too late"
	default:
		return ""
	}
}

func ms(v float64) string { return fmt.Sprintf("%.1f ms", v) }
