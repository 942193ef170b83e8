package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sluice/internal/process"
)

// The exit codes of every program of Sluice.
const (
	exitFine  = 0
	exitFault = 1 // a server failed, or the counts do not add up
	exitUsage = 2
)

// runLimit ends a run that hangs. The default run takes some ten minutes, a long one several times that.
const runLimit = 2 * time.Hour

func main() { os.Exit(start(os.Args[1:])) }

func start(args []string) int {
	if len(args) == 1 && args[0] == buyersCommand {
		return serveBuyers(os.Stdin, os.Stdout)
	}
	opts, err := readOptions(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitFine
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not finished within %s", runLimit))
	defer cancel()
	if err := bench(ctx, opts); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitFault
	}
	return exitFine
}

// bench runs the chosen sections and prints the report.
func bench(ctx context.Context, opts Options) (err error) {
	process.SpareCollections() // as an api does
	began := time.Now()
	testbed, err := openTestbed(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, testbed.close()) }()
	machine, err := testbed.machine(ctx)
	if err != nil {
		return err
	}
	report := Report{Machine: machine, Options: opts}
	for _, section := range sections() {
		if !opts.wants(section.name) {
			continue
		}
		results, err := section.run(ctx, testbed, &report)
		if err != nil {
			return fmt.Errorf("section %s: %w", section.name, err)
		}
		report.Results = append(report.Results, results...)
	}
	report.Seconds = time.Since(began).Seconds()
	write := report.writeTables
	if opts.JSON {
		write = report.writeJSON
	}
	if err := write(os.Stdout); err != nil || opts.Plots == "" {
		return err
	}
	return report.writePlots(opts.Plots)
}

// section is one part of the benchmark. It sees what the parts before it have found.
type section struct {
	name string
	run  func(context.Context, *testbed, *Report) ([]Result, error)
}

func sections() []section {
	return []section{
		{"orders", benchOrders},
		{"sold-out", benchSoldOut},
		{"end-to-end", benchEndToEnd},
		{"handler", benchHandler},
		{"admission", benchAdmission},
		{"latency", benchLatency},
		{"scale", benchScale},
		{"persist", benchPersist},
		{"locks", benchLocks},
	}
}
