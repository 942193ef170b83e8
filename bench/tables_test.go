package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func found() *Report {
	cpu := Usage{Self: 50 * time.Millisecond, Redis: 10 * time.Millisecond, Machine: time.Second}
	accepted := []Work{
		{Count: 1000, Took: time.Second, CPU: cpu, Batch: 25},
		{Count: 3000, Took: time.Second, CPU: cpu, Batch: 25},
	}
	answered := []Work{
		{Count: 2000, Took: time.Second, CPU: Usage{Self: 50 * time.Millisecond, Machine: time.Second}},
		{Count: 4000, Took: time.Second, CPU: Usage{Self: 50 * time.Millisecond, Machine: time.Second}},
	}
	c := &comparison{
		name: "orders-64", title: "Orders over HTTP", unit: "orders",
		candidates: []candidate{{name: "accepted"}, {name: "parse and answer"}},
		pairs:      []pair{{"accepted / parse and answer", 0, 1}},
	}
	return &Report{Machine: Machine{Cores: 2}, Results: []Result{c.result([][]Work{accepted, answered})}}
}

func TestTables(t *testing.T) {
	var out strings.Builder
	if err := found().writeTables(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{
		"2,000", "batch", "ratio accepted / parse and answer  0.62  (0.50 to 0.75)", "limit of accepted: waiting",
		"accepted orders/s, nobody stores them; against parse and answer, 64 connections     2,000   0.62",
		"Other programs kept 0.9 of the 2 cores",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	for _, absent := range []string{"Postgres  ", "p50", "script µs "} {
		if _, table, _ := strings.Cut(text, "Orders over HTTP"); strings.Contains(table, absent) {
			t.Errorf("%q has no value and is in:\n%s", absent, table)
		}
	}
}

func TestJSONCanBeReadBack(t *testing.T) {
	var out strings.Builder
	if err := found().writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil {
		t.Fatal(err)
	}
	if got := back.Results[0].Ratios[0]; got.Median != 0.625 || got.CPU.Median == 0 {
		t.Errorf("got ratio %+v", got)
	}
	if got := back.Results[0].Candidates[0].PerSecond.Median; got != 2000 {
		t.Errorf("accepted per second: got %v, want 2000", got)
	}
}
