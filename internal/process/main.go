package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"sluice/internal/config"
	"sluice/pipeline"
)

// Version is set at build time with -ldflags -X; without it the build's revision tells.
var Version = ""

// BuildVersion returns the version of this binary.
func BuildVersion() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return s.Value[:12]
			}
		}
	}
	return "dev"
}

// Exit codes of every program.
const (
	ExitFine  = 0
	ExitFault = 1 // found wrong, or a server failed
	ExitUsage = 2 // used wrong: a setting or an argument
)

// Main is the whole of a server program: settings, log, signals, run. It returns the exit code. The first SIGINT or
// SIGTERM asks it to finish, the second ends it at once.
func Main(program config.Program, run func(context.Context, config.Config, string, *slog.Logger) error) int {
	cfg, err := config.Load(program, os.Args[1:], os.Getenv, os.Stderr)
	if errors.Is(err, config.ErrHelp) {
		return ExitFine
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s can't start; these settings are wrong:\n%s\nRun %s --help for all of them.\n", program,
			err, program)
		return ExitUsage
	}
	log := NewLogger(os.Stderr, cfg)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal has its usual effect
	log.Info("starting", "program", program, "version", BuildVersion())
	if err := run(ctx, cfg, BuildVersion(), log); err != nil {
		log.Error(string(program)+" failed", "error", err)
		if pipeline.KindOf(err) == pipeline.KindInvalid {
			return ExitUsage
		}
		return ExitFault
	}
	log.Info("stopped", "program", program)
	return ExitFine
}

// NewLogger returns the logger that the settings ask for. No field is longer than a bound, whoever sent what is in it.
func NewLogger(out io.Writer, cfg config.Config) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.LogLevel, ReplaceAttr: boundField}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(out, opts))
	}
	return slog.New(slog.NewTextHandler(out, opts))
}
