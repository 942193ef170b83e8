package main

import (
	"errors"
	"fmt"
	"time"
)

// load is what the buyers' process is asked to do. Times are the two processes' own: they share no clock.
type load struct {
	Addr        string        `json:"addr"` // host:port
	Path        string        `json:"path"` // of the sale's orders
	Connections int           `json:"connections"`
	Length      time.Duration `json:"length"`
	// requests/s over all connections; 0: each buyer after the other, as answers come
	Rate  float64 `json:"rate"`
	Seed  uint64  `json:"seed"`
	First uint64  `json:"first"` // number of the first buyer
	Keys  bool    `json:"keys"`  // with an Idempotency-Key
}

// loadResult is what became of a load. Every request that was sent has its answer in it.
type loadResult struct {
	Statuses map[int]int64 `json:"statuses"` // answers by HTTP status
	Took     time.Duration `json:"took"`     // from the first request to the last answer
	Latency  Quantiles     `json:"latency"`
	Ready    bool          `json:"ready"` // the connections are open; the tally itself follows after a go
	Error    string        `json:"error"`
}

// answered returns how many requests were answered with a status, and an error if any was answered otherwise.
func (t *loadResult) answered(status int) (int64, error) {
	if t.Error != "" {
		return 0, errors.New(t.Error)
	}
	if len(t.Statuses) != 1 || t.Statuses[status] == 0 {
		return 0, fmt.Errorf("every buyer must get %d; statuses: %v", status, t.Statuses)
	}
	return t.Statuses[status], nil
}
