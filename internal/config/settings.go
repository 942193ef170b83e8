package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/pipeline"
)

// setting is one row of the table below. It is a flag.Value, so that a flag only stores its text.
type setting struct {
	name     string // of the environment variable; the flag is the same in lower case with dashes
	fallback string
	help     string
	required bool
	parse    func(text string) error // its error must not repeat a secret

	flagText *string // nil without the flag
}

func (s *setting) String() string { return "" }

func (s *setting) Set(text string) error {
	s.flagText = &text
	return nil
}

func (s *setting) resolve(getenv func(string) string) error {
	text := getenv(s.name)
	if s.flagText != nil {
		text = *s.flagText
	}
	if text == "" {
		text = s.fallback
	}
	if text == "" {
		if s.required {
			return fmt.Errorf("%s is missing: %s", s.name, s.help)
		}
		return nil
	}
	if err := s.parse(text); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

func settings(c *Config) []setting {
	return []setting{
		{
			name: "DATABASE_URL", required: true, parse: databaseURL(&c.DatabaseURL),
			help: "Postgres, as postgres://user:password@host:port/database",
		},
		{
			name: "REDIS_URL", required: true, parse: redisURL(&c.RedisURL),
			help: "Redis, as redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://",
		},
		{
			name: "HTTP_ADDR", fallback: "127.0.0.1:8080", parse: address(&c.HTTPAddr),
			help: "where buyers' requests are served",
		},
		{
			name: "ADMIN_ADDR", parse: address(&c.AdminAddr),
			help: "where health, metrics and the admin API are served; the api's default is 127.0.0.1:8081, " +
				"a worker's a free loopback port",
		},
		{
			name: "ADMIN_TOKEN", parse: text(&c.AdminToken),
			help: "bearer token of the admin API; without it every request is refused",
		},
		{
			name: "PAYMENT_WEBHOOK_SECRET", parse: webhookSecrets(&c.WebhookSecrets),
			help: "what the payment provider signs webhooks with (Standard Webhooks): whsec_ and base64 of 24 to 64 bytes, " +
				"or several of them, separated by spaces, while one is being replaced; without it every webhook is refused",
		},
		{
			name: "AUTH_MODE", fallback: "dev", parse: oneOf(&c.AuthMode, "dev"),
			help: "how buyers are identified: dev (header X-User-Id, for development only)",
		},
		{
			name: "AUTH_DEV_FORCE", fallback: "false", parse: boolean(&c.authDevForce),
			help: "allow AUTH_MODE=dev on an address that is not loopback",
		},
		{
			name: "CORS_ORIGINS", parse: origins(&c.CORSOrigins),
			help: "origins whose pages may call the api from a browser, such as https://shop.example.com, separated by commas; " +
				"without it no page of another origin may",
		},
		{
			name: "PARTITIONS", fallback: "16", parse: integer(&c.Partitions),
			help: "partitions of Redis, fixed at install",
		},
		{
			name: "DURABILITY", fallback: "fsync",
			parse: oneOf(&c.Durability, pipeline.DurabilityMemory, pipeline.DurabilityFsync, pipeline.DurabilityReplica),
			help: "what is confirmed before a buyer gets an answer: memory, fsync (on Redis' disk) or replica " +
				"(received by one as well); the receipt says which it was",
		},
		{
			name: "DURABILITY_STRICT", fallback: "false", parse: boolean(&c.Strict),
			help: "refuse orders (503) while what DURABILITY asks for can't be confirmed, instead of a receipt that says less",
		},
		{
			name: "STREAM_MAX_LAG", fallback: strconv.Itoa(pipeline.DefaultStreamMaxLag), parse: integer(&c.StreamMaxLag),
			help: "orders of a partition that may wait for the workers; above this, new orders get a 503 and a Retry-After",
		},
		{
			name: "ACCEPT_JOURNAL", parse: directory(&c.AcceptJournal),
			help: "directory on a local disk in which an api keeps what it accepts until Postgres has it, in case Redis loses it; " +
				"off: the latest accepts are remembered in memory only; default: journal/ in the STATE_DIRECTORY of systemd, in " +
				"$XDG_STATE_HOME/sluice, in ~/.local/state/sluice or in /var/lib/sluice",
		},
		{
			name: "ACCEPT_JOURNAL_FSYNC", fallback: "false", parse: boolean(&c.JournalFsync),
			help: "flush the accept journal to the disk before each answer, so that it outlives a power cut, too",
		},
		{
			name: "FENCE_MAX_AGE", fallback: "5m", parse: duration(&c.FenceMaxAge),
			help: "how long an api accepts orders without Postgres, which alone can tell it that Redis was replaced by another " +
				"server",
		},
		{
			name: "SALE_RETENTION", fallback: "168h", parse: retention(&c.SaleRetention),
			help: "how long after its last order could be paid a sale leaves Redis, at least 24h; Postgres keeps all of it; " +
				"0: never",
		},
		{name: "WORKER_BATCH_SIZE", fallback: "500", parse: integer(&c.Worker.BatchSize), help: "orders per transaction"},
		{
			name: "WORKER_CONCURRENCY", fallback: "2", parse: integer(&c.Worker.Concurrency),
			help: "batches in flight at once in a worker",
		},
		{
			name: "BATCH_DEADLINE", fallback: "5s", parse: duration(&c.Worker.BatchDeadline),
			help: "time for one batch; shorter than LOCK_TTL",
		},
		{
			name: "LOCK_TTL", fallback: "10s", parse: duration(&c.Worker.LockTTL),
			help: "life of an order's lock; shorter than CLAIM_MIN_IDLE",
		},
		{
			name: "CLAIM_MIN_IDLE", fallback: "15s", parse: duration(&c.Worker.ClaimMinIdle),
			help: "when an event that a living worker holds is claimed by another",
		},
		{
			name: "MAX_DELIVERIES", fallback: "10", parse: integer(&c.Worker.MaxDeliveries),
			help: "deliveries after which an event is processed alone",
		},
		{
			name: "WEBHOOK_ALLOW_PRIVATE", fallback: "false", parse: boolean(&c.WebhookPrivate),
			help: "allow endpoints of events inside the network or on this machine, and without TLS",
		},
		{
			name: "START_TIMEOUT", fallback: "30s", parse: duration(&c.StartTimeout),
			help: "how long to wait for Redis and Postgres at start",
		},
		{
			name: "SHUTDOWN_TIMEOUT", fallback: "15s", parse: duration(&c.ShutdownTimeout),
			help: "how long to finish what is in flight at shutdown",
		},
		{name: "LOG_LEVEL", fallback: "info", parse: level(&c.LogLevel), help: "debug, info, warn or error"},
		{name: "LOG_FORMAT", fallback: "text", parse: oneOf(&c.LogFormat, "text", "json"), help: "text or json"},
	}
}

// directory takes an absolute path, or off: a relative one would be another directory after a restart elsewhere.
func directory(into *string) func(string) error {
	return checked(into, func(s string) (string, bool) { return s, s == journalOff || filepath.IsAbs(s) },
		"is neither an absolute path nor off")
}

func text(into *string) func(string) error {
	return func(s string) error { *into = s; return nil }
}

func oneOf[T ~string](into *T, allowed ...T) func(string) error {
	return checked(into, func(s string) (T, bool) { return T(s), slices.Contains(allowed, T(s)) },
		fmt.Sprintf("is not one of %q", allowed))
}

func boolean(into *bool) func(string) error {
	return checked(into, func(s string) (bool, bool) {
		b, err := strconv.ParseBool(s)
		return b, err == nil
	}, "is neither true nor false")
}

func integer(into *int) func(string) error {
	return checked(into, func(s string) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && n >= 1 && n <= math.MaxInt32
	}, fmt.Sprintf("is not a whole number from 1 to %d", math.MaxInt32))
}

func duration(into *time.Duration) func(string) error {
	return checked(into, func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d > 0 && d <= time.Hour
	}, "is not a time like 500ms or 5s, up to 1h")
}

// retention takes no less than a day: until then Redis must have a sale, see db.Watermarks.
func retention(into *time.Duration) func(string) error {
	const least, most = 24 * time.Hour, 10 * 365 * 24 * time.Hour
	return checked(into, func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && (d == 0 || d >= least && d <= most)
	}, "is neither 0 nor a time like 168h, from 24h to 87600h")
}

func level(into *slog.Level) func(string) error {
	return checked(into, func(s string) (l slog.Level, ok bool) {
		err := l.UnmarshalText([]byte(s))
		return l, err == nil
	}, "is not one of debug, info, warn, error")
}

func address(into *string) func(string) error {
	return checked(into, func(s string) (string, bool) {
		_, port, err := net.SplitHostPort(s)
		n, bad := strconv.Atoi(port)
		return s, err == nil && bad == nil && n >= 0 && n <= 65535
	}, "is not host:port; for a port on this machine write 127.0.0.1:8080")
}

// checked stores a parsed text, unless it is wrong. The error repeats the text, so it is not for secrets.
func checked[T any](into *T, parse func(string) (T, bool), wrong string) func(string) error {
	return func(s string) error {
		value, ok := parse(s)
		if !ok {
			return fmt.Errorf("%q %s", s, wrong)
		}
		*into = value
		return nil
	}
}

// databaseURL and redisURL check the form only, and never repeat the text: it contains a password.
func databaseURL(into *string) func(string) error {
	return func(s string) error {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			return errors.New("not a URL of the form postgres://user:password@host:port/database")
		}
		*into = s
		return nil
	}
}

func redisURL(into *string) func(string) error {
	return func(s string) error {
		if _, err := RedisOptions(s); err != nil {
			return err
		}
		*into = strings.TrimSpace(s)
		return nil
	}
}
