package programs

import (
	"context"
	"log/slog"
	"os"

	"sluice/internal/config"
	"sluice/internal/process"
)

// Serve runs a server program when the arguments (without the program's name) ask for one: `api` or `worker`,
// followed by settings. These two are what a stack starts; they are not for people, who have the programs of the same
// names.
func Serve(args []string) (exitCode int, served bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch config.Program(args[0]) {
	case config.API:
		return serve(config.API, args, process.RunAPI), true
	case config.Worker:
		return serve(config.Worker, args, process.RunWorker), true
	default:
		return 0, false
	}
}

type runner = func(ctx context.Context, cfg config.Config, version string, log *slog.Logger) error

// serve makes the arguments look as they do to cmd/api and cmd/worker.
func serve(program config.Program, args []string, run runner) int {
	os.Args = args
	return process.Main(program, run)
}
