package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pictured is a report with one result of each kind that has a plot.
func pictured() *Report {
	standing := func(name string, rate float64) Standing {
		return Standing{
			Name: name, PerSecond: Spread{Median: rate}, CPU: CPUCost{Sluice: 40, Redis: 20, Postgres: 15},
			Latency: Quantiles{P50: 500, P99: 4000, P999: 20_000},
		}
	}
	both := []Standing{standing("sluice", 20_000), standing("parse and answer", 50_000)}
	return &Report{Results: []Result{
		{Name: "latency-70", Load: 70, Candidates: both},
		{Name: "latency-30", Load: 30, Candidates: both},
		{Name: "end-to-end-64", Title: "64", Candidates: both},
		{Name: "end-to-end-256", Title: "256 kept connections", Candidates: both},
		{Name: "scale-sales", Ratios: []Ratio{{Says: "100 sales / 1 sale", Spread: Spread{Median: 0.95}}}},
	}}
}

func TestPlots(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pictures")
	if err := pictured().writePlots(dir); err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string][]string{
		"latency":        {"sluice, p99", "parse and answer, p99.9", "% of capacity"},
		"end-to-end":     {"256 kept connections", "20000", "50000"},
		"end-to-end-cpu": {"CPU time per order", "75"},
		"scale":          {"100 sales", "0.95"},
	} {
		text := textsOf(t, filepath.Join(dir, name+".svg"))
		for _, want := range says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing among: %s", name, want, text)
			}
		}
	}
}

func TestWithoutResultsThereIsNoPlot(t *testing.T) {
	if err := (&Report{}).writePlots(t.TempDir()); err == nil {
		t.Error("no error")
	}
}

// textsOf reads a picture as XML, and returns what is written in it.
func textsOf(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var texts strings.Builder
	for d := xml.NewDecoder(file); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts.String()
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if data, ok := token.(xml.CharData); ok {
			texts.Write(data)
		}
	}
}
