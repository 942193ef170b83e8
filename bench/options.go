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
	Seconds     float64  `json:"seconds"`     // of each timed round
	Connections []int    `json:"connections"` // of the buyers, one comparison each
	Clients     int      `json:"clients"`     // goroutines that call without a network
	Rate        float64  `json:"rate"`        // orders/s of the latency section; 0: a third of what was measured
	Rows        int      `json:"rows"`        // of each round of the persist section
	Batch       int      `json:"batch"`       // rows per transaction
	Keys        bool     `json:"keys"`        // buyers send an Idempotency-Key
	Seed        uint64   `json:"seed"`
	Sections    []string `json:"sections"`
	JSON        bool     `json:"-"`
	Profile     string   `json:"-"`
}

// The bounds keep a slip of the finger from filling the disk: an accept takes about 700 bytes of it.
const (
	maxRounds      = 100
	maxSeconds     = 60
	maxConnections = 4096
	maxRows        = 2_000_000
)

func readOptions(args []string, out io.Writer) (Options, error) {
	var o Options
	var connections, chosen string
	all := sectionNames()
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&o.Rounds, "rounds", 5, "rounds of each comparison; the report tells their median")
	flags.Float64Var(&o.Seconds, "seconds", 0.7, "length of each timed round")
	flags.StringVar(&connections, "connections", "64,256", "connections of the buyers, one comparison for each")
	flags.IntVar(&o.Clients, "clients", 256, "goroutines that call handler and admission without a network")
	flags.Float64Var(&o.Rate, "rate", 0,
		"orders per second of the latency section (default a third of what was measured)")
	flags.IntVar(&o.Rows, "rows", 25_000, "events of each round of the persist section")
	flags.IntVar(&o.Batch, "batch", 500, "rows per transaction")
	flags.BoolVar(&o.Keys, "keys", true, "buyers send an Idempotency-Key")
	flags.Uint64Var(&o.Seed, "seed", 1, "makes the buyers' ids and arrival times")
	flags.StringVar(&chosen, "sections", strings.Join(all, ","), "sections to run")
	flags.BoolVar(&o.JSON, "json", false, "print one JSON object in place of tables")
	flags.StringVar(&o.Profile, "profile", "", "write CPU profiles of this process, cpu.out as cpu.<comparison>.out")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var err error
	if o.Connections, err = readIntegers(connections); err != nil {
		return o, fmt.Errorf("-connections: %w", err)
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
	for _, name := range o.Sections {
		check(slices.Contains(all, name), "-sections %q: use %s", name, strings.Join(all, ", "))
	}
	return errors.Join(errs...)
}

func (o *Options) wants(section string) bool { return slices.Contains(o.Sections, section) }

// length is how long a timed round takes; the warm-up is a part of it, and so is a round without a network, which is
// steadier.
func (o *Options) length(share float64) time.Duration {
	return time.Duration(o.Seconds * share * float64(time.Second))
}

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
