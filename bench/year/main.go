// Command year simulates a year of daily sales on private servers, whose clocks it moves on by a day after each. Every
// day some buyers order through Redis and a worker; the rest of the day's orders are generated in Postgres and copied
// into Redis, and an audit compares the two. Retiring, dropping and pruning are the jobs of a worker. It prints sizes
// and times each month, and exits with 1 when Redis or Postgres grows for ever, a hot statement reads a whole table, or
// an audit finds anything.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"sluice/pipeline/retention"
)

// options are the size of a year.
type options struct {
	days, orders, buyers int
	quiet                bool // the generated orders cause no events
	keep                 retention.Policy
}

const (
	month = 30 // days
	// runLimit ends a run that hangs.
	runLimit = 6 * time.Hour
)

func main() {
	o := options{keep: retention.Policy{
		Sales: 7 * 24 * time.Hour, Orders: retention.Least, AuditLog: retention.Least, Events: 7 * 24 * time.Hour,
	}}
	flag.IntVar(&o.days, "days", 365, "days, each with a sale")
	flag.IntVar(&o.orders, "orders", 3000, "orders of a sale")
	flag.IntVar(&o.buyers, "buyers", 100, "orders of a sale that are placed through Redis, and persisted by a worker")
	flag.BoolVar(&o.quiet, "quiet", false, "write no events about generated orders: a big year takes a third of the time")
	flag.Parse()
	if o.days < 1 || o.buyers < 1 || o.orders < o.buyers {
		fmt.Fprintln(os.Stderr, "year: use at least one day, one buyer, and as many orders as buyers")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not finished within %s", runLimit))
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "year:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	y := &year{options: o}
	defer func() { err = errors.Join(err, y.close()) }()
	if err := y.open(ctx); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "%d days, a sale of %d orders each, %d of them placed through Redis. "+
		"Kept: sales in Redis %s, orders %s.\n\n", o.days, o.orders, o.buyers, o.keep.Sales, o.keep.Orders)
	var months []measurement
	for day := 1; day <= o.days; day++ {
		if err := y.day(ctx, day); err != nil {
			return fmt.Errorf("day %d: %w", day, err)
		}
		if day%month != 0 && day != o.days {
			continue
		}
		m, err := y.measure(ctx, day)
		if err != nil {
			return fmt.Errorf("day %d: %w", day, err)
		}
		months = append(months, m)
		m.print(&months[0], len(months) == 1)
	}
	return y.judge(ctx, months)
}
