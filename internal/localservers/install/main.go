// Command install makes sure that this machine has the binaries of Redis (or Valkey) and Postgres, as `make setup`
// does. Where they exist it prints nothing and returns at once.
//
// Exit codes: 0 they exist, 1 they do not and the message says what to do.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"sluice/internal/localservers"
)

func main() {
	// An interrupted installation must still clean up: see install-apt.sh.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := localservers.Install(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
}
