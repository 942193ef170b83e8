package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/pipeline/worker"
)

// Options are the flags. Their JSON is part of the report, so that a run can be repeated.
type Options struct {
	Rounds      int      `json:"rounds"`
	Seconds     float64  `json:"seconds"`      // of each timed round
	Connections []int    `json:"connections"`  // of the buyers, one comparison each
	Clients     int      `json:"clients"`      // goroutines that call without a network
	Rate        float64  `json:"rate"`         // orders/s that the latency section takes for the capacity; 0: measured
	Loads       []int    `json:"loads"`        // of the latency section, percent of the capacity
	LoadSeconds float64  `json:"load_seconds"` // of each of its rounds
	Sales       int      `json:"sales"`        // of the scale section
	Backlog     int      `json:"backlog"`      // orders that wait in its full stream
	Workers     []int    `json:"workers"`      // of its last part
	Rows        int      `json:"rows"`         // of each round of the persist section
	Batch       int      `json:"batch"`        // rows per transaction
	Keys        bool     `json:"keys"`         // buyers send an Idempotency-Key
	Seed        uint64   `json:"seed"`
	Sections    []string `json:"sections"`
	JSON        bool     `json:"-"`
	Profile     string   `json:"-"`
	Plots       string   `json:"-"` // folder of the pictures; empty: none
}

// The bounds keep a slip of the finger from filling the disk: an accept takes about 700 bytes of it.
const (
	maxRounds      = 100
	maxSeconds     = 60
	maxConnections = 4096
	maxRows        = 2_000_000
	maxLoad        = 500 // percent of the capacity
	maxSales       = 1000
	maxWorkers     = 16
)

func readOptions(args []string, out io.Writer) (Options, error) {
	var o Options
	var connections, chosen, loads, workers string
	all := sectionNames()
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&o.Rounds, "rounds", 5, "rounds of each comparison; the report tells their median")
	flags.Float64Var(&o.Seconds, "seconds", 0.7, "length of each timed round")
	flags.StringVar(&connections, "connections", "64,256", "connections of the buyers, one comparison for each")
	flags.IntVar(&o.Clients, "clients", 256, "goroutines that call handler and admission without a network")
	flags.Float64Var(&o.Rate, "rate", 0,
		"orders per second that the latency section takes for the capacity (default: it is measured)")
	flags.StringVar(&loads, "loads", "30,50,70,90,120", "loads of the latency section, in percent of the capacity")
	flags.Float64Var(&o.LoadSeconds, "load-seconds", 2, "length of each round of the latency section")
	flags.IntVar(&o.Sales, "sales", 100, "sales of the scale section, against one")
	flags.IntVar(&o.Backlog, "backlog", 100_000, "orders that wait in the scale section, against none; up to 2000000")
	flags.StringVar(&workers, "workers", "1,2,4", "workers of the scale section, in one process")
	flags.IntVar(&o.Rows, "rows", 25_000, "events of each round of the persist section")
	flags.IntVar(&o.Batch, "batch", 500, "rows per transaction")
	flags.BoolVar(&o.Keys, "keys", true, "buyers send an Idempotency-Key")
	flags.Uint64Var(&o.Seed, "seed", 1, "makes the buyers' ids and arrival times")
	flags.StringVar(&chosen, "sections", strings.Join(all, ","), "sections to run")
	flags.BoolVar(&o.JSON, "json", false, "print one JSON object in place of tables")
	flags.StringVar(&o.Plots, "plots", "", "write plots of what was measured into this folder, as SVG")
	flags.StringVar(&o.Profile, "profile", "", "write CPU profiles of this process, cpu.out as cpu.<comparison>.out")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for _, list := range []struct {
		flag, text string
		into       *[]int
	}{{"connections", connections, &o.Connections}, {"loads", loads, &o.Loads}, {"workers", workers, &o.Workers}} {
		var err error
		if *list.into, err = readIntegers(list.text); err != nil {
			return o, fmt.Errorf("-%s: %w", list.flag, err)
		}
	}
	o.Sections = strings.Split(chosen, ",")
	return o, o.validate(all)
}

// validate returns every broken rule at once.
func (o *Options) validate(all []string) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.Rounds >= 1 && o.Rounds <= maxRounds, "-rounds %d: use 1 to %d", o.Rounds, maxRounds)
	check(o.Seconds >= 0.1 && o.Seconds <= maxSeconds, "-seconds %g: use 0.1 to %d", o.Seconds, maxSeconds)
	check(o.Clients >= 1 && o.Clients <= maxConnections, "-clients %d: use 1 to %d", o.Clients, maxConnections)
	check(o.Rate >= 0 && !math.IsInf(o.Rate, 0), "-rate %g: use 0 or more", o.Rate)
	check(o.Batch >= 1 && o.Batch <= worker.MaxBatchSize, "-batch %d: use 1 to %d", o.Batch, worker.MaxBatchSize)
	check(o.Rows >= o.Batch && o.Rows <= maxRows, "-rows %d: use %d (one batch) to %d", o.Rows, o.Batch, maxRows)
	for _, n := range o.Connections {
		check(n >= 1 && n <= maxConnections, "-connections %d: use 1 to %d", n, maxConnections)
	}
	check(o.LoadSeconds >= 0.1 && o.LoadSeconds <= maxSeconds, "-load-seconds %g: use 0.1 to %d", o.LoadSeconds,
		maxSeconds)
	check(o.Plots == "" || slices.ContainsFunc(plotted, o.wants), "-plots: none of the chosen sections has a plot; choose %s",
		strings.Join(plotted, ", "))
	check(o.Sales >= 1 && o.Sales <= maxSales, "-sales %d: use 1 to %d", o.Sales, maxSales)
	check(o.Backlog >= 1 && o.Backlog <= maxRows, "-backlog %d: use 1 to %d", o.Backlog, maxRows)
	for _, load := range o.Loads {
		check(load >= 1 && load <= maxLoad, "-loads %d: use 1 to %d percent", load, maxLoad)
	}
	for _, n := range o.Workers {
		check(n >= 1 && n <= maxWorkers, "-workers %d: use 1 to %d", n, maxWorkers)
	}
	for _, name := range o.Sections {
		check(slices.Contains(all, name), "-sections %q: use %s", name, strings.Join(all, ", "))
	}
	return errors.Join(errs...)
}

// plotted are the sections whose results are drawn.
var plotted = []string{"latency", "scale", "end-to-end"}

func (o *Options) wants(section string) bool { return slices.Contains(o.Sections, section) }

// length is how long a timed round takes; the warm-up is a part of it, and so is a round without a network, which is
// steadier.
func (o *Options) length(share float64) time.Duration {
	return seconds(o.Seconds * share)
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func sectionNames() []string {
	var names []string
	for _, s := range sections() {
		names = append(names, s.name)
	}
	return names
}

func readIntegers(text string) ([]int, error) {
	var numbers []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", part)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
