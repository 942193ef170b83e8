package main

import (
	"fmt"
	"strings"

	"sluice/internal/table"
)

// summary prints the figures that a reader looks for first, of those that were measured. The table of each comparison
// has the details.
func (p *printer) summary(r *Report) {
	t := table.New("In short", ">absolute", ">ratio", ">by CPU time")
	for _, wanted := range []struct{ name, ratio, what string }{
		{"orders-", "accepted / parse and answer", "accepted orders/s, nobody stores them; against parse and answer"},
		{"end-to-end-", "sluice / parse and answer", "orders/s from POST to row, worker running; against parse and answer"},
		{"end-to-end-", "sluice / textbook", "the same against the textbook's pipeline"},
		{"end-to-end-", "sluice / asynq", "the same against a row for each task of asynq"},
		{"end-to-end-", "sluice / asynq, grouped", "the same against groups of asynq"},
		{"sold-out-", "sold out / parse and answer", "answers/s of a sold-out sale; against parse and answer"},
		{"persist-", "worker / bare insert", "rows/s from a full stream; against a bare insert"},
	} {
		result := r.last(wanted.name)
		if result == nil {
			continue
		}
		for _, ratio := range result.Ratios {
			if ratio.Says == wanted.ratio {
				t.Row(wanted.what+connectionsOf(result), int64(result.Candidates[0].PerSecond.Median), twoDigits(ratio.Median),
					twoDigits(ratio.CPU.Median))
			}
		}
	}
	if stored := r.last("end-to-end-"); stored != nil {
		cpu := stored.Candidates[0].CPU
		t.Row("CPU µs per order from POST to row: API and worker / Redis / Postgres",
			fmt.Sprintf("%.0f / %.0f / %.0f", cpu.Sluice, cpu.Redis, cpu.Postgres), "", "")
	}
	for _, load := range r.loads() {
		t.Row(fmt.Sprintf("p99 of an accept at %d %% of capacity, ms; times parse and answer's", load.Load),
			fmt.Sprintf("%.2f", load.Candidates[0].Latency.P99/1000),
			twoDigits(load.Candidates[0].Latency.P99/max(load.Candidates[1].Latency.P99, 1)), "")
	}
	for _, result := range r.Results {
		if strings.HasPrefix(result.Name, "scale-") {
			for _, ratio := range result.Ratios {
				t.Row("throughput, "+ratio.Says, "", twoDigits(ratio.Median), twoDigits(ratio.CPU.Median))
			}
		}
	}
	if t.Len() > 0 {
		p.table(t)
		p.line("")
	}
}

// connectionsOf is the last part of a comparison's name, where it is a number of connections.
func connectionsOf(r *Result) string {
	if strings.HasPrefix(r.Name, "persist-") {
		return ", " + strings.TrimPrefix(r.Name, "persist-") + " at once"
	}
	return ", " + r.Name[strings.LastIndex(r.Name, "-")+1:] + " connections"
}

func twoDigits(x float64) string { return fmt.Sprintf("%.2f", x) }
