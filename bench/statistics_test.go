package main

import (
	"testing"
	"time"
)

func TestSpreadOf(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   Spread
	}{
		{[]float64{7}, Spread{7, 7, 7}},
		{[]float64{3, 1}, Spread{2, 1, 3}},
		{[]float64{9, 1, 5}, Spread{5, 1, 9}},
		{[]float64{4, 1, 3, 2}, Spread{2.5, 1, 4}},
	} {
		if got := spreadOf(test.values); got != test.want {
			t.Errorf("spreadOf(%v): got %+v, want %+v", test.values, got, test.want)
		}
	}
}

// A machine that is twice as slow in the second round makes both slow: the ratio must not show it, though the ratio
// of the medians would.
func TestRatioIsTakenRoundByRound(t *testing.T) {
	work := func(counts ...int64) (rounds []Work) {
		for _, count := range counts {
			rounds = append(rounds, Work{Count: count, Took: time.Second})
		}
		return rounds
	}
	got := ratioOf(work(100, 50, 100), work(200, 100, 200))
	if want := (Spread{0.5, 0.5, 0.5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestCPURatioCountsEverybodyWhoTookPart(t *testing.T) {
	of := []Work{{Count: 10, CPU: Usage{Self: 30, Redis: 10, Machine: 1000}}}
	against := []Work{{Count: 20, CPU: Usage{Self: 40, Machine: 2000}}}
	if got, want := cpuRatioOf(of, against).Median, 0.5; got != want {
		t.Errorf("got %v, want %v: 2 for each against 4 for each", got, want)
	}
	if got := cpuRatioOf([]Work{{Count: 1}}, []Work{{Count: 1}}).Median; got != 0 {
		t.Errorf("without CPU times: got %v, want 0", got)
	}
}

func TestQuantilesOf(t *testing.T) {
	var micros []uint32
	for i := range uint32(1000) {
		micros = append(micros, 1000-i)
	}
	if got, want := quantilesOf(micros), (Quantiles{P50: 500, P90: 900, P99: 990, P999: 999, Max: 1000}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := quantilesOf([]uint32{5}), (Quantiles{5, 5, 5, 5, 5}); got != want {
		t.Errorf("one value: got %+v, want %+v", got, want)
	}
	if got := quantilesOf(nil); got != (Quantiles{}) {
		t.Errorf("no value: got %+v, want zeros", got)
	}
}
