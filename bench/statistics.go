package main

import (
	"math"
	"slices"
)

// Spread is what a few rounds found: the middle one, and the two that frame it. With so few rounds lowest and highest
// say more than a standard deviation.
type Spread struct {
	Median  float64 `json:"median"`
	Lowest  float64 `json:"lowest"`
	Highest float64 `json:"highest"`
}

// spreadOf needs at least one value.
func spreadOf(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Lowest: sorted[0], Highest: sorted[n-1]}
}

// spreadOver is the spread of something of each round.
func spreadOver(rounds []Work, value func(Work) float64) Spread {
	values := make([]float64, len(rounds))
	for i, w := range rounds {
		values[i] = value(w)
	}
	return spreadOf(values)
}

// ratioOf compares two candidates round by round: what disturbed the machine during a round mostly disturbed both.
func ratioOf(of, against []Work) Spread {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i].rate() / against[i].rate()
	}
	return spreadOf(ratios)
}

// cpuRatioOf compares what two candidates cost in CPU time, of everybody who took part, and is reported the same way
// round: 0.5 is twice the cost. It is what the ratio of the rates would be if CPU time were all that counts, and it
// stays nearly the same on a machine that has other things to do.
func cpuRatioOf(of, against []Work) Spread {
	ratios := make([]float64, len(of))
	for i := range of {
		if cost := of[i].perUnit(of[i].CPU.ours()); cost > 0 {
			ratios[i] = against[i].perUnit(against[i].CPU.ours()) / cost
		}
	}
	return spreadOf(ratios)
}

// Quantiles of waiting times, in microseconds.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// quantilesOf sorts its argument. Without values all are 0.
func quantilesOf(micros []uint32) Quantiles {
	if len(micros) == 0 {
		return Quantiles{}
	}
	slices.Sort(micros)
	return Quantiles{
		P50: nearestRank(micros, 0.50), P90: nearestRank(micros, 0.90), P99: nearestRank(micros, 0.99),
		P999: nearestRank(micros, 0.999), Max: float64(micros[len(micros)-1]),
	}
}

// nearestRank is the smallest value that at least this part of all values do not exceed.
func nearestRank(sorted []uint32, part float64) float64 {
	rank := int(math.Ceil(part * float64(len(sorted))))
	return float64(sorted[max(rank, 1)-1])
}
