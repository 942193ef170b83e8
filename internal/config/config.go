// Package config reads the settings of every Sluice program: from a flag, or else the environment, or else the default.
// An error reports everything that is wrong at once, and no secret is ever printed.
package config

import (
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"sluice/httpapi/auth"
	"sluice/internal/certificate"
	"sluice/pipeline"
	"sluice/pipeline/retention"
	"sluice/pipeline/worker"
	"sluice/webhook"
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
	RedisCA         *x509.CertPool // whose certificates of Redis are believed; nil: those of the system
	HTTPAddr        string
	HTTPTLS         certificate.Files
	AdminAddr       string
	AdminTLS        certificate.Files
	AdminToken      string
	WebhookSecrets  []string // of the payment provider; a webhook may be signed with any of them
	Encryption      *webhook.Keyring
	CORSOrigins     []string // whose pages may call the api from a browser
	HTTP            HTTPLimits
	AuthMode        string
	Tokens          auth.TokenOptions // of AUTH_MODE=jwt
	Proxy           auth.ProxyOptions // of AUTH_MODE=proxy
	Entry           EntryTickets
	authDevForce    bool
	RedisFunctions  bool // REDIS_FUNCTIONS
	Partitions      int
	Durability      pipeline.Durability
	Strict          bool // DURABILITY_STRICT
	StreamMaxLag    int
	AcceptJournal   string // directory; empty: accepts are remembered in memory only
	JournalFsync    bool   // ACCEPT_JOURNAL_FSYNC
	FenceMaxAge     time.Duration
	Retention       retention.Policy
	RetentionExport string // RETENTION_EXPORT_DIR; empty: nothing is exported
	WebhookPrivate  bool   // WEBHOOK_ALLOW_PRIVATE
	Worker          worker.Options
	StartTimeout    time.Duration
	ShutdownTimeout time.Duration
	LogLevel        slog.Level
	LogFormat       string

	// Files are those that secrets were read from, by the name of the secret's setting.
	Files map[string]string
}

// ErrHelp is returned after --help was printed.
var ErrHelp = flag.ErrHelp

// Load reads the settings. The error names every wrong and every missing one, a line each. Help is written to out.
func Load(program Program, args []string, getenv func(string) string, out io.Writer) (Config, error) {
	c := Config{Files: map[string]string{}}
	var o optional
	all := settings(&c, &o)
	flags := flag.NewFlagSet(string(program), flag.ContinueOnError)
	flags.SetOutput(io.Discard) // mistakes are in the error
	for i := range all {
		flags.Var(&all[i], all[i].flagName(), "")
		if all[i].secret {
			flags.Var(fileFlag{&all[i]}, all[i].flagName()+"-file", "")
		}
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
		if all[i].file != "" {
			c.Files[all[i].name] = all[i].file
		}
	}
	if c.AcceptJournal == "" {
		c.AcceptJournal = DefaultAcceptJournal(getenv)
	}
	if c.AcceptJournal == journalOff {
		c.AcceptJournal = ""
	}
	if c.RetentionExport == journalOff {
		c.RetentionExport = ""
	}
	if c.RedisCA != nil && c.RedisURL != "" && !strings.HasPrefix(c.RedisURL, "rediss") {
		errs = append(errs, errors.New("REDIS_CA_FILE is set, but REDIS_URL is without TLS: use rediss://"))
	}
	c.setHTTPLimits(o)
	errs = append(errs, c.validateTLS(program), c.validate(program))
	return c, errors.Join(errs...)
}

func (c *Config) validate(program Program) error {
	var errs []error
	c.Worker.Partitions = max(c.Partitions, 1) // 0: not a number, which is reported already
	errs = append(errs, c.Worker.WithDefaults().Validate())
	if program == API {
		errs = append(errs, c.validateAuth())
	}
	return errors.Join(errs...)
}

// LocalBuyersOnly reports whether the public side is for programs on this machine only: anybody may be any buyer there.
func (c *Config) LocalBuyersOnly() bool { return c.AuthMode == AuthDev && !c.authDevForce }

// LocalOperatorsOnly reports whether the operations side can be reached from this machine only.
func (c *Config) LocalOperatorsOnly() bool { return c.AdminAddr == "" || loopback(c.AdminAddr) }

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

func printUsage(out io.Writer, program Program, all []setting) {
	fmt.Fprintf(out, "Usage: %s [--setting value ...]\n\n"+
		"Every setting is a flag or an environment variable; the flag wins. What is secret stands in the environment, or in\n"+
		"a file that NAME_FILE or --name-file names, because everybody on a machine can see the flags.\n\n", program)
	for _, s := range all {
		name := s.flagName()
		if s.secret && s.hides == nil {
			name += "-file"
		}
		fmt.Fprintf(out, "  --%-18s %s\n", name, s.usage())
	}
}

func (s *setting) usage() string {
	text := s.help + " (" + s.name
	if s.secret {
		text += " or " + s.name + fileSuffix
	}
	if s.fallback != "" {
		text += ", default " + s.fallback
	}
	return text + ")"
}

func (s *setting) flagName() string { return strings.ToLower(strings.ReplaceAll(s.name, "_", "-")) }
