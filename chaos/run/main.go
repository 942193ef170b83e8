// Command run is `make chaos`: a flash sale on private servers while everything around it breaks, and the proof that
// nothing was lost. See package chaos and docs/chaos.md.
//
// Exit codes: 0 fine, 1 something was found wrong or failed, 2 used wrong.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sluice/chaos"
	"sluice/internal/programs"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, complaints io.Writer) int {
	if code, served := programs.Serve(args); served {
		return code
	}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(complaints)
	var o chaos.Options
	minutes := flags.Float64("minutes", 1, "how long faults are injected")
	flags.Uint64Var(&o.Seed, "seed", 0, "of everything random; 0 makes a new one")
	flags.IntVar(&o.Clients, "clients", 0, "requests under way at once; 0 is the default")
	flags.IntVar(&o.Rate, "rate", 0, "requests per second at most; 0 is the default")
	flags.BoolVar(&o.Lossless, "lossless", false, "leave out the faults that take data from a store")
	flags.StringVar(&o.Pair, "pair", "", "only this pair of kinds, with a slash between them, or one kind: \"FLUSHALL/kill -9 of an API\"")
	flags.StringVar(&o.Durability, "durability", "", "what receipts promise: memory, fsync or replica; as much as the topology can by default")
	flags.BoolVar(&o.Least, "least", false, "the programs' users of Redis have the rights of sluice acl --functions")
	topology := flags.String("topology", "", "single, the default; sentinel: Redis with a replica; cluster: three masters of Redis, a replica for each; replicated-postgres: with a synchronous standby; citus: a Postgres of three nodes")
	flags.BoolVar(&o.Calm, "calm", false, "no faults at all")
	logFile := flags.String("log", "", "a file for every line that the programs write; it is overwritten")
	exam := flags.Bool("exam", false, "one fail-over of Redis after the other, each for -minutes: what became of the receipts")
	asJSON := flags.Bool("json", false, "the report as JSON, on stdout; the story goes to stderr")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	o.Topology = chaos.Topology(*topology)
	o.Duration = time.Duration(*minutes * float64(time.Minute))
	if err := o.WithDefaults().Validate(); err != nil {
		fmt.Fprintln(complaints, "chaos:", err)
		return 2
	}
	if *logFile != "" {
		log, err := os.Create(*logFile)
		if err != nil {
			fmt.Fprintln(complaints, "chaos:", err)
			return 2
		}
		defer func() { _ = log.Close() }()
		o.Log = log
	}
	story := out
	if *asJSON {
		story = complaints
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal has its usual effect
	if *exam {
		if err := runExam(ctx, o, out, complaints); err != nil {
			fmt.Fprintln(complaints, "chaos:", err)
			return 1
		}
		return 0
	}
	report, err := chaos.Run(ctx, o, story)
	if report != nil {
		err = errors.Join(err, write(out, report, *asJSON))
	}
	if err != nil {
		fmt.Fprintln(complaints, "chaos:", err)
		return 1
	}
	if !report.OK {
		return 1
	}
	return 0
}

// runExam prints the table on out, and what happens on the other.
func runExam(ctx context.Context, o chaos.Options, out, story io.Writer) error {
	if _, err := fmt.Fprintln(out, chaos.ExamHeader); err != nil {
		return err
	}
	return chaos.Exam(ctx, o, story, func(row *chaos.ExamRow) error {
		_, err := fmt.Fprintln(out, row)
		return err
	})
}

func write(out io.Writer, r *chaos.Report, asJSON bool) error {
	if !asJSON {
		fmt.Fprintln(out)
		return r.Write(out)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
