package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"

	"sluice/internal/table"
)

const indent = "  "

// writeTables prints the report for people.
func (r *Report) writeTables(out io.Writer) error {
	p := &printer{out: out}
	p.line("Sluice benchmark: ratios compare what was measured side by side; absolute numbers belong to this machine alone.")
	p.line("")
	p.machine(&r.Machine)
	p.options(&r.Options)
	for i := range r.Results {
		p.line("")
		p.result(&r.Results[i])
	}
	p.line("")
	p.summary(r)
	p.disturbance(r)
	p.line("CPU µs: processor time for each order or row, by whose it is; \"sluice\" is the api or the worker, and the callers too")
	p.line("where there is no network. Script µs: Redis' own count of the time in the script. The books were checked after each")
	p.line("round and add up. Schedule late: p99 of how late the buyers' own schedule was, which is part of their wait.")
	p.line("A ratio by CPU time is what it would be if nothing else counted. The run took %.0f s.",
		r.Seconds)
	return p.err
}

// printer keeps the first error, so that printing stays a plain list.
type printer struct {
	out io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	_, err := fmt.Fprintf(p.out, format+"\n", args...)
	p.err = cmp.Or(p.err, err)
}

func (p *printer) table(t *table.Table) { p.err = cmp.Or(p.err, t.Write(p.out, indent)) }

func (p *printer) machine(m *Machine) {
	const line = indent + "%-9s %s"
	p.line(line, "Machine",
		fmt.Sprintf("%s, %d cores, %s, load %s before the run", m.CPU, m.Cores, m.System, m.LoadAtRun))
	p.line(line, "Go", m.Go)
	p.line(line, "Redis", m.Redis)
	p.line(line, "Postgres", m.Postgres)
	p.line(line, "Disk", fmt.Sprintf("%.0f µs to write and flush 4 KiB", m.Flush))
}

func (p *printer) options(o *Options) {
	p.line("%s%-9s %d rounds and a warm-up, %g s each (%g s in the open model), %d rows, batches of %d, keys %t, seed %d",
		indent, "Run", o.Rounds, o.Seconds, o.LoadSeconds, o.Rows, o.Batch, o.Keys, o.Seed)
}

// worthReporting is how many busy cores of others spoil the numbers.
const worthReporting = 0.1

func (p *printer) disturbance(r *Report) {
	if cores := r.disturbance(); cores >= worthReporting {
		p.line("Other programs kept %.1f of the %d cores busy during the run: rates are too low and their ratios blurred;",
			cores, r.Machine.Cores)
		p.line("what holds are CPU times and the ratios by CPU time.")
	}
}

// column is one number of a standing. A column without any value is left out.
type column struct {
	header string
	value  func(*Standing) float64
	digits int
}

func columns(unit string) []column {
	return []column{
		{">" + unit + "/s", func(s *Standing) float64 { return s.PerSecond.Median }, 0},
		{">lowest", func(s *Standing) float64 { return s.PerSecond.Lowest }, 0},
		{">highest", func(s *Standing) float64 { return s.PerSecond.Highest }, 0},
		{">CPU µs: sluice", func(s *Standing) float64 { return s.CPU.Sluice }, 1},
		{">Redis", func(s *Standing) float64 { return s.CPU.Redis }, 1},
		{">Postgres", func(s *Standing) float64 { return s.CPU.Postgres }, 1},
		{">buyers", func(s *Standing) float64 { return s.CPU.Buyers }, 1},
		{">others' cores", func(s *Standing) float64 { return s.Shares.Others }, 2},
		{">batch", func(s *Standing) float64 { return s.Batch }, 0},
		{">script µs", func(s *Standing) float64 { return s.Script }, 1},
		{">p50 ms", func(s *Standing) float64 { return s.Latency.P50 / 1000 }, 2},
		{">p90", func(s *Standing) float64 { return s.Latency.P90 / 1000 }, 2},
		{">p99", func(s *Standing) float64 { return s.Latency.P99 / 1000 }, 2},
		{">p99.9", func(s *Standing) float64 { return s.Latency.P999 / 1000 }, 2},
		{">max", func(s *Standing) float64 { return s.Latency.Max / 1000 }, 2},
		{">shed", func(s *Standing) float64 { return s.Shed }, 0},
		{">not sent", func(s *Standing) float64 { return s.NotSent }, 0},
		{">schedule late ms", func(s *Standing) float64 { return s.Late / 1000 }, 2},
	}
}

func (p *printer) result(r *Result) {
	p.line("%s", r.Title)
	headers, shown := []string{""}, []column{}
	for _, c := range columns(r.Unit) {
		if hasValues(r.Candidates, c) {
			headers, shown = append(headers, c.header), append(shown, c)
		}
	}
	t := table.New(headers...)
	for i := range r.Candidates {
		cells := []any{r.Candidates[i].Name}
		for _, c := range shown {
			cells = append(cells, number(c.value(&r.Candidates[i]), c.digits))
		}
		t.Row(cells...)
	}
	p.table(t)
	ratios := table.New("", ">", "", ">", "")
	for _, ratio := range r.Ratios {
		ratios.Row("ratio "+ratio.Says, fmt.Sprintf("%.2f", ratio.Median), framed(ratio.Spread),
			fmt.Sprintf("by CPU time %.2f", ratio.CPU.Median), framed(ratio.CPU))
	}
	p.table(ratios)
	for _, note := range r.Notes {
		p.line("%s%s", indent, note)
	}
	for _, s := range r.Candidates {
		p.line("%slimit of %s: %s", indent, s.Name, s.Limit)
	}
}

func framed(s Spread) string { return fmt.Sprintf("(%.2f to %.2f)", s.Lowest, s.Highest) }

func hasValues(all []Standing, c column) bool {
	for i := range all {
		if math.Abs(c.value(&all[i])) >= 0.5*math.Pow10(-c.digits) {
			return true
		}
	}
	return false
}

// number writes whole numbers with thousands' separators and others with their digits; "-" is no value.
func number(x float64, digits int) any {
	switch {
	case math.Abs(x) < 0.5*math.Pow10(-digits):
		return "-"
	case digits == 0:
		return int64(math.Round(x))
	default:
		return strings.TrimSpace(fmt.Sprintf("%.*f", digits, x))
	}
}
