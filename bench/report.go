package main

import (
	"encoding/json"
	"io"
	"runtime"
	"time"
)

// Report is everything that a run found. Its JSON is for comparing runs.
type Report struct {
	Machine Machine  `json:"machine"`
	Options Options  `json:"options"`
	Results []Result `json:"results"`
	Seconds float64  `json:"seconds"` // of the whole run
}

// Result is what one comparison found.
type Result struct {
	Name       string     `json:"name"`
	Title      string     `json:"title"`
	Unit       string     `json:"unit"`
	Candidates []Standing `json:"contestants"`
	Ratios     []Ratio    `json:"ratios,omitempty"`
	Notes      []string   `json:"notes,omitempty"`        // figures that were asked for, and whether they were reached
	Load       int        `json:"load_percent,omitempty"` // of capacity
}

// Ratio is how two candidates compare.
type Ratio struct {
	Says   string `json:"says"`
	Spread        // of the rates
	CPU    Spread `json:"cpu"` // of the CPU time: what the first is if only that counts
}

// Standing is what one candidate did, the median of its rounds.
type Standing struct {
	Name      string    `json:"name"`
	PerSecond Spread    `json:"per_second"`
	CPU       CPUCost   `json:"cpu_us"` // for each order or row
	Shares    CPUCost   `json:"cores"`  // cores kept busy
	Batch     float64   `json:"batch,omitempty"`
	Script    float64   `json:"script_us,omitempty"` // Redis' own count of the time in the script, for each order
	Latency   Quantiles `json:"latency_us"`
	Shed      float64   `json:"shed,omitempty"`
	NotSent   float64   `json:"not_sent,omitempty"`
	Late      float64   `json:"late_us,omitempty"` // p99 of how late the buyers' own schedule was
	Limit     string    `json:"limit"`             // what kept it from being faster
}

// CPUCost is CPU time by whose it was.
type CPUCost struct {
	Sluice   float64 `json:"sluice"`
	Buyers   float64 `json:"buyers"`
	Redis    float64 `json:"redis"`
	Postgres float64 `json:"postgres"`
	Others   float64 `json:"others"` // programs that are not ours
}

func standing(name string, rounds []Work) Standing {
	median := func(value func(Work) float64) float64 { return spreadOver(rounds, value).Median }
	cost := func(measure func(Work, time.Duration) float64) CPUCost {
		of := func(whose func(Usage) time.Duration) float64 {
			return median(func(w Work) float64 { return measure(w, whose(w.CPU)) })
		}
		return CPUCost{
			Sluice:   of(func(u Usage) time.Duration { return u.Self }),
			Buyers:   of(func(u Usage) time.Duration { return u.Buyers }),
			Redis:    of(func(u Usage) time.Duration { return u.Redis }),
			Postgres: of(func(u Usage) time.Duration { return u.Postgres }),
			Others:   of(func(u Usage) time.Duration { return u.others() }),
		}
	}
	return Standing{
		Name:      name,
		PerSecond: spreadOver(rounds, Work.rate),
		CPU:       cost(Work.perUnit),
		Shares:    cost(Work.share),
		Batch:     median(func(w Work) float64 { return w.Batch }),
		Script:    median(func(w Work) float64 { return w.Script }),
		Latency: Quantiles{
			P50:  median(func(w Work) float64 { return w.Latency.P50 }),
			P90:  median(func(w Work) float64 { return w.Latency.P90 }),
			P99:  median(func(w Work) float64 { return w.Latency.P99 }),
			P999: median(func(w Work) float64 { return w.Latency.P999 }),
			Max:  spreadOver(rounds, func(w Work) float64 { return w.Latency.Max }).Highest,
		},
		Shed:    median(func(w Work) float64 { return float64(w.Shed) }),
		NotSent: median(func(w Work) float64 { return float64(w.NotSent) }),
		Late:    median(func(w Work) float64 { return w.Late }),
		Limit:   verdict(sum(rounds), runtime.NumCPU()),
	}
}

// sum is all rounds as one.
func sum(rounds []Work) Work {
	var all Work
	for _, w := range rounds {
		all.Count += w.Count
		all.Took += w.Took
		all.CPU = all.CPU.plus(w.CPU)
	}
	return all
}

// disturbance is how many cores other programs kept busy on average while something was measured.
func (r *Report) disturbance() float64 {
	var cores, n float64
	for _, result := range r.Results {
		for _, s := range result.Candidates {
			cores, n = cores+s.Shares.Others, n+1
		}
	}
	return cores / max(n, 1)
}

func (r *Report) writeJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
