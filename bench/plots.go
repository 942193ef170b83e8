package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The size of a picture. SVG scales, so it only sets how large letters are.
const (
	plotWidth  = 18 * vg.Centimeter
	plotHeight = 10 * vg.Centimeter
	barWidth   = 28 * vg.Millimeter / 2
)

// picture is a plot and the name of its file, without the ending.
type picture struct {
	name string
	plot *plot.Plot
}

// writePlots writes a picture of each kind of result that the report has, and overwrites older ones.
func (r *Report) writePlots(dir string) error {
	pictures, err := r.pictures()
	if err != nil {
		return err
	}
	if len(pictures) == 0 {
		return errors.New("there is nothing to plot")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, one := range pictures {
		if err := one.write(filepath.Join(dir, one.name+".svg")); err != nil {
			return err
		}
	}
	return nil
}

func (p *picture) write(path string) (err error) {
	canvas := vgsvg.New(plotWidth, plotHeight)
	p.plot.Draw(draw.New(canvas))
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = canvas.WriteTo(file)
	return err
}

func (r *Report) pictures() (pictures []picture, err error) {
	if loads := r.loads(); len(loads) > 0 {
		p, err := latencyPlot(loads)
		if err != nil {
			return nil, err
		}
		pictures = append(pictures, picture{"latency", p})
	}
	if result := r.last("end-to-end-"); result != nil {
		p, err := barsPlot(result, "orders/s from POST to row", func(s *Standing) float64 { return s.PerSecond.Median })
		if err != nil {
			return nil, err
		}
		cpu, err := barsPlot(result, "CPU time per order, µs (less is better)", func(s *Standing) float64 {
			return s.CPU.Sluice + s.CPU.Redis + s.CPU.Postgres
		})
		if err != nil {
			return nil, err
		}
		pictures = append(pictures, picture{"end-to-end", p}, picture{"end-to-end-cpu", cpu})
	}
	if p, err := r.scalePlot(); err != nil || p != nil {
		return append(pictures, picture{"scale", p}), err
	}
	return pictures, nil
}

// loads are the results of the latency section, from the smallest load to the largest.
func (r *Report) loads() []Result {
	var loads []Result
	for _, result := range r.Results {
		if result.Load > 0 {
			loads = append(loads, result)
		}
	}
	slices.SortFunc(loads, func(a, b Result) int { return a.Load - b.Load })
	return loads
}

// last is the last result whose name begins so, which is the one with the most connections; nil: there is none.
func (r *Report) last(prefix string) *Result {
	for i := len(r.Results) - 1; i >= 0; i-- {
		if strings.HasPrefix(r.Results[i].Name, prefix) {
			return &r.Results[i]
		}
	}
	return nil
}

// latencyPlot draws the percentiles of each candidate over the load. Waits at different loads differ by powers of ten,
// so that axis is logarithmic.
func latencyPlot(loads []Result) (*plot.Plot, error) {
	p := newPlot("How long an accept takes, at random arrivals")
	p.X.Label.Text, p.Y.Label.Text = "load, % of capacity", "wait, ms"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	percentiles := []struct {
		name string
		of   func(Quantiles) float64
	}{
		{"p50", func(q Quantiles) float64 { return q.P50 }},
		{"p99", func(q Quantiles) float64 { return q.P99 }},
		{"p99.9", func(q Quantiles) float64 { return q.P999 }},
	}
	for i, who := range loads[0].Candidates {
		for j, percentile := range percentiles {
			points := make(plotter.XYs, 0, len(loads))
			for _, load := range loads {
				const shortest = 0.01 // ms; a logarithm needs more than 0
				ms := max(percentile.of(load.Candidates[i].Latency)/1000, shortest)
				points = append(points, plotter.XY{X: float64(load.Load), Y: ms})
			}
			line, dots, err := plotter.NewLinePoints(points)
			if err != nil {
				return nil, err
			}
			line.Color, dots.Color = plotutil.Color(i), plotutil.Color(i)
			line.Dashes, dots.Shape = plotutil.Dashes(j), plotutil.Shape(j)
			p.Add(line, dots)
			p.Legend.Add(who.Name+", "+percentile.name, line, dots)
		}
	}
	return p, nil
}

// barsPlot draws one bar for each candidate.
func barsPlot(r *Result, label string, value func(*Standing) float64) (*plot.Plot, error) {
	values, names := make(plotter.Values, len(r.Candidates)), make([]string, len(r.Candidates))
	for i := range r.Candidates {
		values[i], names[i] = value(&r.Candidates[i]), r.Candidates[i].Name
	}
	return bars(r.Title, label, values, names)
}

// scalePlot draws what is left of the throughput with more of something; nil: that was not measured.
func (r *Report) scalePlot() (*plot.Plot, error) {
	var values plotter.Values
	var names []string
	for _, result := range r.Results {
		if !strings.HasPrefix(result.Name, "scale-") {
			continue
		}
		for _, ratio := range result.Ratios {
			values, names = append(values, ratio.Median), append(names, strings.ReplaceAll(ratio.Says, " / ", "\n/ "))
		}
	}
	if len(values) == 0 {
		return nil, nil //nolint:nilnil // there is nothing to draw, and nothing is wrong
	}
	return bars("Throughput with more of something, against less", "ratio", values, names)
}

func bars(title, label string, values plotter.Values, names []string) (*plot.Plot, error) {
	p := newPlot(title)
	p.Y.Label.Text, p.Y.Min = label, 0
	chart, err := plotter.NewBarChart(values, barWidth)
	if err != nil {
		return nil, err
	}
	chart.Color, chart.LineStyle.Width = plotutil.Color(2), 0
	labels := plotter.XYLabels{}
	for i, value := range values {
		labels.XYs = append(labels.XYs, plotter.XY{X: float64(i), Y: value})
		labels.Labels = append(labels.Labels, short(value))
	}
	figures, err := plotter.NewLabels(labels)
	if err != nil {
		return nil, err
	}
	figures.Offset.Y = vg.Millimeter
	for i := range figures.TextStyle {
		figures.TextStyle[i].XAlign = draw.XCenter
	}
	p.Add(chart, figures)
	p.NominalX(names...)
	p.Y.Max = 1.1 * slices.Max(values)
	return p, nil
}

// short writes a number with as many digits as a bar needs.
func short(value float64) string {
	if value < 10 {
		return fmt.Sprintf("%.2f", value)
	}
	return fmt.Sprintf("%.0f", value)
}

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = 3 * vg.Millimeter
	p.Add(plotter.NewGrid())
	return p
}
