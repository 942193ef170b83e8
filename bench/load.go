package main

import (
	"fmt"

	"sluice/internal/loadgen"
)

// buyersAnswer is what the buyers' process says: that the connections of a load are open, and then what became of it.
type buyersAnswer struct {
	Ready  bool            `json:"ready"`
	Result *loadgen.Result `json:"result"`
	Error  string          `json:"error"`
}

// answered returns how many requests were answered with a status, and an error if any was not.
func answered(r *loadgen.Result, status int) (int64, error) {
	if r.Failures > 0 {
		return 0, fmt.Errorf("%d requests without an answer: %s", r.Failures, r.FirstFailure)
	}
	if len(r.Statuses) != 1 || r.Statuses[status] == 0 {
		return 0, fmt.Errorf("every buyer must get %d; statuses: %v", status, r.Statuses)
	}
	return r.Statuses[status], nil
}

func quantiles(l loadgen.Latency) Quantiles {
	return Quantiles{P50: l.P50, P90: l.P90, P99: l.P99, P999: l.P999, Max: l.Max}
}
