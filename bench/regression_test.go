//go:build !race

package main

import "testing"

// written are the ratios by CPU time that docs/performance.md and docs/benchmarks.md have of a quiet machine, at 64
// connections and with one writer. They are lowered or raised here together with the documents.
var written = map[string]map[string]float64{
	"orders-64":     {"accepted / parse and answer": 0.60},
	"sold-out-64":   {"sold out / parse and answer": 0.95},
	"end-to-end-64": {"sluice / textbook": 4.2},
	"persist-1":     {"worker / bare insert": 0.30, "persist statement / bare insert": 0.72},
}

// TestNoGrossRegression runs the sections that matter most, briefly, and fails where something costs more than twice as
// much as is written. CPU time is what is compared: another program that keeps the machine busy changes it little. The
// race detector would change everything, so `make test` runs this one without it.
func TestNoGrossRegression(t *testing.T) {
	testbed := openSmall(t, Options{
		Rounds: 2, Seconds: 0.4, Connections: []int{64}, Clients: 64, Rows: 10_000, Batch: 500, Keys: true, Seed: 1,
	})
	found := map[string]map[string]float64{}
	for _, section := range sections() {
		switch section.name {
		case "orders", "sold-out", "end-to-end", "persist":
		default:
			continue
		}
		results, err := section.run(t.Context(), testbed, &Report{})
		if err != nil {
			t.Fatalf("section %s: %v", section.name, err)
		}
		for _, result := range results {
			found[result.Name] = map[string]float64{}
			for _, ratio := range result.Ratios {
				found[result.Name][ratio.Says] = ratio.CPU.Median
			}
		}
	}
	for comparison, ratios := range written {
		for says, want := range ratios {
			got, measured := found[comparison][says]
			t.Logf("%s: %s is %.2f by CPU time, %.2f is written", comparison, says, got, want)
			if !measured || got < want/2 {
				t.Errorf("%s: %s is %.2f by CPU time, less than half of %.2f", comparison, says, got, want)
			}
		}
	}
}
