package main

import (
	"errors"
	"os"
	"testing"

	"sluice/internal/localservers"
)

// TestMain lets the test binary be started again as the buyers' process, like the program itself.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == buyersCommand {
		os.Exit(serveBuyers(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// smallTestbed is a testbed for runs that are as short as they can be.
func smallTestbed(t *testing.T) *testbed {
	t.Helper()
	return openSmall(t, Options{
		Rounds: 1, Seconds: 0.3, Connections: []int{4}, Clients: 16, Rows: 600, Batch: 250, Keys: true, Seed: 1,
		Loads: []int{50, 120}, LoadSeconds: 0.3, Sales: 5, Backlog: 1000, Workers: []int{1, 2},
	})
}

// openSmall opens a testbed until the test ends. Without servers the test is skipped, but for CI.
func openSmall(t *testing.T, opts Options) *testbed {
	t.Helper()
	testbed, err := openTestbed(t.Context(), opts)
	if errors.Is(err, localservers.ErrNoBinary) && os.Getenv("CI") == "" && os.Getenv("SLUICE_REQUIRE_SERVERS") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := testbed.close(); err != nil {
			t.Error(err)
		}
	})
	return testbed
}

// Every section runs on real servers, and its counts add up: that is checked inside, after each round.
func TestSections(t *testing.T) {
	testbed := smallTestbed(t)
	report := &Report{}
	for _, section := range sections() {
		results, err := section.run(t.Context(), testbed, report)
		if err != nil {
			t.Fatalf("section %s: %v", section.name, err)
		}
		for _, result := range results {
			for _, s := range result.Candidates {
				if s.PerSecond.Lowest <= 0 {
					t.Errorf("%s: %s did nothing", result.Name, s.Name)
				}
			}
			for _, ratio := range result.Ratios {
				if ratio.Median <= 0 {
					t.Errorf("%s: ratio %s is %v", result.Name, ratio.Says, ratio.Median)
				}
			}
		}
		report.Results = append(report.Results, results...)
	}
}

// The checks above are worth something only if they fail when one order is missing, or one too many.
func TestBooksThatDoNotAddUpAreFound(t *testing.T) {
	testbed := smallTestbed(t)
	ctx := t.Context()
	h, err := newWorkload(testbed)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.close() }()
	h.size(1)
	if err := h.empty(ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.fillStream(ctx); err != nil {
		t.Fatal(err)
	}
	orders := int64(len(h.now))
	if err := testbed.checkAccepts(ctx, orders); err != nil {
		t.Errorf("as many as there were accepts: %v", err)
	}
	for _, accepts := range []int64{orders - 1, orders + 1} {
		if testbed.checkAccepts(ctx, accepts) == nil {
			t.Errorf("%d orders in Redis, %d accepts: no error", orders, accepts)
		}
	}
	if testbed.checkDrained(ctx) == nil {
		t.Error("a full stream passes as drained")
	}
	if err := h.persist(ctx, h.now); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(testbed.checkRows(ctx, "orders", orders), testbed.checkCounters(ctx, orders)); err != nil {
		t.Errorf("as many rows as events: %v", err)
	}
	if testbed.checkRows(ctx, "orders", orders+1) == nil || testbed.checkCounters(ctx, orders-1) == nil {
		t.Error("rows or counters that are off by one: no error")
	}
}
