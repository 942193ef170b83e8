// Command install makes sure that this machine has the binaries of Redis (or Valkey) and Postgres, as `make setup` does.
// It prints nothing and is done at once where they are there already.
//
// Exit codes: 0 they are there, 1 they are not and the message says what to do.
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
	// An interrupted installation must still tidy up: see install-apt.sh.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := localservers.Install(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
}
