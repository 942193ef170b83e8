package main

import (
	"encoding/json"
	"fmt"
	"time"

	"sluice/internal/loadgen"
	"sluice/internal/table"
)

// benchView is what a load has found, for programs. Waiting times count from when the schedule meant a request to be
// sent.
type benchView struct {
	URL               string            `json:"url"`
	Sale              string            `json:"sale"`
	Rate              float64           `json:"rate"` // asked for, per second
	Connections       int               `json:"connections"`
	Seed              uint64            `json:"seed"`
	Seconds           float64           `json:"seconds"` // from the end of the warm-up to the last answer
	AcceptedPerSecond float64           `json:"accepted_per_second"`
	Accepts           loadgen.Latency   `json:"accepts"`
	Rejections        loadgen.Latency   `json:"rejections"`
	Sheds             loadgen.Latency   `json:"sheds"`
	Errors            loadgen.Latency   `json:"errors"`
	Outcomes          []loadgen.Outcome `json:"outcomes"`
	NotSent           int64             `json:"not_sent"`
	ScheduleLate      loadgen.Latency   `json:"schedule_late"`
	FirstFailure      string            `json:"first_failure,omitempty"`
}

func newBenchView(load loadgen.Config, r *loadgen.Result) benchView {
	v := benchView{
		URL: load.URL, Sale: load.Sales[0], Rate: load.Rate, Connections: load.Connections, Seed: load.Seed,
		Seconds: r.Took.Seconds(), Accepts: r.Accepts, Rejections: r.Rejections, Sheds: r.Sheds, Errors: r.Errors,
		Outcomes: r.Outcomes, NotSent: r.NotSent, ScheduleLate: r.Late, FirstFailure: r.FirstFailure,
	}
	if v.Outcomes == nil {
		v.Outcomes = []loadgen.Outcome{}
	}
	if v.Seconds > 0 {
		v.AcceptedPerSecond = float64(r.Accepts.Count) / v.Seconds
	}
	return v
}

func (a *app) printBench(load loadgen.Config, r *loadgen.Result) error {
	v := newBenchView(load, r)
	if a.json {
		return a.printJSON(v)
	}
	t := table.New("", ">REQUESTS", ">P50 MS", ">P90", ">P99", ">P99.9", ">MAX", "")
	for _, o := range v.Outcomes {
		t.Row(outcomeName(o), o.Latency.Count, millis(o.Latency.P50), millis(o.Latency.P90), millis(o.Latency.P99),
			millis(o.Latency.P999), millis(o.Latency.Max), kindMeaning[o.Kind])
	}
	if v.NotSent > 0 {
		t.Row("not sent", v.NotSent, "", "", "", "", "",
			fmt.Sprintf("%s waited already; their waits are unknown", table.Number(loadgen.DefaultWaiting)))
	}
	if err := t.Write(a.out, ""); err != nil {
		return err
	}
	sayf(a.out, "")
	sayf(a.out, "%.1f orders/s were accepted, of %g/s asked for, over %s on %d connections (seed %d).",
		v.AcceptedPerSecond, v.Rate, age(r.Took.Round(time.Millisecond)), v.Connections, v.Seed)
	sayf(a.out, "Waits count from when a request was due. This program itself was late by %s ms (p99), which is part of them.",
		millis(v.ScheduleLate.P99))
	if v.FirstFailure != "" {
		sayf(a.out, "The first request without an answer: %s", table.Clean(v.FirstFailure))
	}
	return nil
}

func outcomeName(o loadgen.Outcome) string {
	switch {
	case o.Status == 0:
		return "no answer"
	case o.Code == "":
		return fmt.Sprint(o.Status)
	default:
		return fmt.Sprintf("%d %s", o.Status, o.Code)
	}
}

var kindMeaning = map[loadgen.Kind]string{
	loadgen.Accepted: "accepted", loadgen.Rejected: "rejected", loadgen.Shed: "shed: come again later",
	loadgen.Failed: "error",
}

func millis(micros float64) string { return fmt.Sprintf("%.2f", micros/1000) }

// remainingIn reads the units that are left from the API's answer about a sale.
func remainingIn(body []byte) string {
	var sale struct {
		Remaining *int64 `json:"remaining"`
	}
	if err := json.Unmarshal(body, &sale); err != nil || sale.Remaining == nil {
		return "unknown"
	}
	return table.Number(*sale.Remaining) + " units"
}
