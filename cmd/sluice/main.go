// Command sluice is the operator's tool: it runs the whole thing on one machine (dev, demo), defines and changes sales,
// shows where orders are, and proves that none was lost.
//
// Exit codes: 0 fine, 1 something was found wrong or failed, 2 used wrong.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"sluice/internal/programs"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if code, served := programs.Serve(args); served {
		return code
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal has its usual effect
	return execute(ctx, args, os.Stdout, os.Stderr)
}
