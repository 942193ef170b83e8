// Composeload is the crowd of deploy/compose-test.sh: many buyers who order from a running API, some of them twice,
// some with a retry of the same request. It writes the ids of all orders that were accepted to a file, and fails when
// an answer breaks the contract.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "composeload: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var c crowd
	var accepted string
	flags := flag.NewFlagSet("composeload", flag.ExitOnError)
	flags.StringVar(&c.api, "api", "http://127.0.0.1:8080", "address of the API")
	flags.StringVar(&c.sale, "sale", "", "id of the sale")
	flags.IntVar(&c.buyers, "buyers", 4000, "different buyers, 1 or more; each orders at least once")
	flags.IntVar(&c.requests, "requests", 8000, "requests in all, at least one per buyer")
	flags.IntVar(&c.clients, "clients", 64, "requests under way at once, 1 or more")
	flags.IntVar(&c.perSecond, "rate", 1200, "requests per second, 1 or more")
	flags.Uint64Var(&c.seed, "seed", uint64(time.Now().UnixNano()), "seed of the order in which buyers come")
	flags.StringVar(&c.spur, "spur", "", "file that ends the slow part in the middle; without a name there is none")
	flags.StringVar(&accepted, "accepted", "", "file for the ids of accepted orders, one per line")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if c.sale == "" || accepted == "" {
		return errors.New("-sale and -accepted are needed")
	}
	if c.buyers < 1 || c.requests < c.buyers || c.clients < 1 || c.perSecond < 1 {
		return errors.New("-buyers, -clients and -rate start at 1, -requests at the number of buyers")
	}

	began := time.Now()
	history, err := c.order(ctx)
	fmt.Fprintf(os.Stdout, "%d requests of %d buyers in %.1f s (seed %d): %s\n",
		c.requests, c.buyers, time.Since(began).Seconds(), c.seed, summary(history))
	return errors.Join(err, check(history), write(history, accepted))
}
