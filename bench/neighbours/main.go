// Command neighbours measures how long honest buyers wait while one client attacks the same api: alone, and then beside
// each attack. It starts private servers, an api with limits and a worker; the attacker is a process of its own, at
// another address of the loopback network (127.0.0.2, so it runs on Linux).
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

	"sluice/internal/programs"
)

// options are what a run measures.
type options struct {
	seconds     int
	rate        float64 // honest orders/s
	connections int     // of the attacker
	limit       string  // RATE_LIMIT_CLIENT
	perClient   string  // MAX_CONNECTIONS_PER_CLIENT
	only        string
}

func main() {
	if code, served := programs.Serve(os.Args[1:]); served {
		os.Exit(code)
	}
	var o options
	flag.IntVar(&o.seconds, "seconds", 8, "of each measurement")
	flag.Float64Var(&o.rate, "rate", 50, "honest orders per second")
	flag.IntVar(&o.connections, "connections", 200, "of the attacker")
	flag.StringVar(&o.limit, "limit", "200/1s", "RATE_LIMIT_CLIENT of the api; off compares")
	flag.StringVar(&o.perClient, "per-client", "256", "MAX_CONNECTIONS_PER_CLIENT of the api; off compares")
	flag.StringVar(&o.only, "only", "", "one attack")
	attack := flag.String("attack", "", "attack as the program's own child does, with the JSON of its target")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *attack != "" {
		runAttack(ctx, *attack)
		return
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "neighbours:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	s, err := open(ctx, o)
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "honest: %g orders/s; attacker: %d connections; limit %s, %s connections per client; %d s each\n\n",
		o.rate, o.connections, o.limit, o.perClient, o.seconds)
	fmt.Fprintf(os.Stdout, "%-16s %10s %10s   %10s %10s   %5s   %s\n", "attack", "p50 alone", "p99 alone", "p50 beside", "p99 beside",
		"p99 x", "answers to the attacker, per second")
	for _, kind := range kinds {
		if o.only != "" && o.only != kind.name {
			continue
		}
		if err := s.compare(ctx, kind.name); err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
	}
	return nil
}

// compare measures alone first, so that the two are as close in time as can be.
func (s *stage) compare(ctx context.Context, kind string) error {
	alone, err := s.honest(ctx)
	if err != nil {
		return err
	}
	child, err := s.attack(ctx, kind)
	if err != nil {
		return err
	}
	time.Sleep(time.Second) // it has begun
	beside, err := s.honest(ctx)
	answers, attackErr := child.stop()
	if err := errors.Join(err, attackErr); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "%-16s %8.1fms %8.1fms   %8.1fms %8.1fms   %5.2f   %s\n", kind, alone.P50/1000, alone.P99/1000,
		beside.P50/1000, beside.P99/1000, beside.P99/alone.P99, answers)
	return nil
}
