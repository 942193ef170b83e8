package main

import (
	"testing"

	"sluice/internal/loadgen"
)

func TestAnswered(t *testing.T) {
	if n, err := answered(&loadgen.Result{Statuses: map[int]int64{202: 5}}, 202); n != 5 || err != nil {
		t.Errorf("got %d, %v, want 5", n, err)
	}
	for _, result := range []loadgen.Result{
		{},
		{Statuses: map[int]int64{409: 1}},
		{Statuses: map[int]int64{202: 5, 503: 1}},
		{Statuses: map[int]int64{202: 5}, Failures: 1, FirstFailure: "lost"},
	} {
		if _, err := answered(&result, 202); err == nil {
			t.Errorf("%+v: no error", result)
		}
	}
}
