// Package config reads the settings of every Sluice program: from a flag, or else the environment, or else the default.
// An error reports everything that is wrong at once, and no secret is ever printed.
package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/worker"
)

// Program is one of Sluice's programs. Some settings are checked for one of them only.
type Program string

// The programs.
const (
	API    Program = "api"
	Worker Program = "worker"
	CLI    Program = "sluice"
)

// Config holds every setting; README.md and --help list them.
type Config struct {
	DatabaseURL     string
	RedisURL        string
	HTTPAddr        string
	AdminAddr       string
	AdminToken      string
	WebhookSecrets  []string // of the payment provider; a webhook may be signed with any of them
	CORSOrigins     []string // whose pages may call the api from a browser
	AuthMode        string
	authDevForce    bool
	Partitions      int
	Durability      pipeline.Durability
	Strict          bool // DURABILITY_STRICT
	StreamMaxLag    int
	AcceptJournal   string // directory; empty: accepts are remembered in memory only
	JournalFsync    bool   // ACCEPT_JOURNAL_FSYNC
	FenceMaxAge     time.Duration
	SaleRetention   time.Duration // 0: sales stay in Redis
	WebhookPrivate  bool          // WEBHOOK_ALLOW_PRIVATE
	Worker          worker.Options
	StartTimeout    time.Duration
	ShutdownTimeout time.Duration
	LogLevel        slog.Level
	LogFormat       string
}

// ErrHelp is returned after --help was printed.
var ErrHelp = flag.ErrHelp

// Load reads the settings. The error names every wrong and every missing one, a line each. Help is written to out.
func Load(program Program, args []string, getenv func(string) string, out io.Writer) (Config, error) {
	c := Config{}
	all := settings(&c)
	flags := flag.NewFlagSet(string(program), flag.ContinueOnError)
	flags.SetOutput(io.Discard) // mistakes are in the error
	for i := range all {
		flags.Var(&all[i], all[i].flagName(), all[i].usage())
	}
	flags.Usage = func() {}
	var errs []error
	switch err := flags.Parse(args); {
	case errors.Is(err, ErrHelp):
		printUsage(out, program, all)
		return c, ErrHelp
	case err != nil:
		errs = append(errs, err)
	}
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}
	for i := range all {
		errs = append(errs, all[i].resolve(getenv))
	}
	if c.AcceptJournal == "" {
		c.AcceptJournal = DefaultAcceptJournal(getenv)
	}
	if c.AcceptJournal == journalOff {
		c.AcceptJournal = ""
	}
	errs = append(errs, c.validate(program))
	return c, errors.Join(errs...)
}

func (c *Config) validate(program Program) error {
	var errs []error
	c.Worker.Partitions = max(c.Partitions, 1) // 0: not a number, which is reported already
	errs = append(errs, c.Worker.WithDefaults().Validate())
	known := c.HTTPAddr != "" // else it can't be read, which is reported already
	if program == API && c.AuthMode == "dev" && known && !loopback(c.HTTPAddr) && !c.authDevForce {
		errs = append(errs, fmt.Errorf("AUTH_MODE=dev lets anybody be any buyer, and HTTP_ADDR %s is not loopback; "+
			"set AUTH_DEV_FORCE=true only on a closed network", c.HTTPAddr))
	}
	return errors.Join(errs...)
}

// journalOff is the value of ACCEPT_JOURNAL by which accepts are remembered in memory only.
const journalOff = "off"

// DefaultAcceptJournal is where accept journals are unless ACCEPT_JOURNAL says otherwise: where programs keep state
// that survives a restart: what systemd names, else what the XDG base directory specification (0.8) names, else where
// root keeps it.
func DefaultAcceptJournal(getenv func(string) string) string {
	state, _, _ := strings.Cut(getenv("STATE_DIRECTORY"), ":")
	if state == "" && getenv("XDG_STATE_HOME") != "" {
		state = filepath.Join(getenv("XDG_STATE_HOME"), "sluice")
	}
	if home := getenv("HOME"); state == "" && home != "" && home != "/" && home != "/root" {
		state = filepath.Join(home, ".local", "state", "sluice")
	}
	if state == "" {
		state = "/var/lib/sluice"
	}
	return filepath.Join(state, "journal")
}

// loopback reports whether an address can only be reached from this machine.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func printUsage(out io.Writer, program Program, all []setting) {
	fmt.Fprintf(out, "Usage: %s [--setting value ...]\n\n"+
		"Every setting is a flag or an environment variable; the flag wins.\n\n", program)
	for _, s := range all {
		fmt.Fprintf(out, "  --%-18s %s\n", s.flagName(), s.usage())
	}
}

func (s *setting) usage() string {
	text := s.help + " (" + s.name
	if s.fallback != "" {
		text += ", default " + s.fallback
	}
	return text + ")"
}

func (s *setting) flagName() string { return strings.ToLower(strings.ReplaceAll(s.name, "_", "-")) }
