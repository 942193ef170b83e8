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
	"sluice/pipeline/operator"
	"sluice/pipeline/retention"
	"sluice/webhook"
)

// setting is one row of the table below. It is a flag.Value, so that a flag only stores its text.
type setting struct {
	name     string // of the environment variable; the flag is the same in lower case with dashes
	fallback string
	help     string
	required bool
	parse    func(text string) error // its error must not repeat a secret

	// secret is true of what nobody else may read: it can be in a file, and a flag must not have it. The passwords in
	// URLs are secret, and the rest of a URL is not.
	secret bool
	hides  func(text string) bool // reports whether a text has something secret; nil: all of it is

	flagText *string // nil without the flag
	fileText *string // nil without the flag of the file
	file     string  // that the text was read from
}

func (s *setting) String() string { return "" }

func (s *setting) Set(text string) error {
	s.flagText = &text
	return nil
}

func (s *setting) resolve(getenv func(string) string) error {
	text, from, err := s.text(getenv)
	if err != nil {
		return err
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
		return fmt.Errorf("%s: %w", from, err)
	}
	return nil
}

// text returns what a setting was set to, and the name of what set it.
func (s *setting) text(getenv func(string) string) (text, from string, err error) {
	if s.secret {
		return s.secretText(getenv)
	}
	if s.flagText != nil {
		return *s.flagText, s.name, nil
	}
	return getenv(s.name), s.name, nil
}

func settings(c *Config, o *optional) []setting {
	return slices.Concat(
		serviceSettings(c), certificateSettings(c), buyerSettings(c), entrySettings(c), limitSettings(c, o),
	)
}

func serviceSettings(c *Config) []setting {
	return []setting{
		{
			name: "DATABASE_URL", secret: true, hides: passwordInURL, required: true, parse: databaseURL(&c.DatabaseURL),
			help: "Postgres, as postgres://user:password@host:port/database",
		},
		{
			name: "REDIS_URL", secret: true, hides: passwordInURL, required: true, parse: redisURL(&c.RedisURL),
			help: "Redis, as redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://",
		},
		{
			name: "REDIS_FUNCTIONS", fallback: "false", parse: boolean(&c.RedisFunctions),
			help: "call the scripts as functions that were loaded beforehand (sluice functions load), so that the programs' users " +
				"of Redis need no right to send scripts",
		},
		{
			name: "REDIS_CA_FILE", parse: certificates(&c.RedisCA),
			help: "file with the certificates of the CA (PEM) that signed Redis' own, for rediss://; without it those of the " +
				"system count",
		},
		{
			name: "HTTP_ADDR", fallback: "127.0.0.1:8080", parse: socketOrAddress(&c.HTTPAddr),
			help: "where buyers' requests are served; unix:/path is a Unix socket, for a proxy on this machine",
		},
		{
			name: "ADMIN_ADDR", parse: address(&c.AdminAddr),
			help: "where health, metrics and the admin API are served; the api's default is 127.0.0.1:8081, " +
				"a worker's a free loopback port",
		},
		{
			name: "ADMIN_TOKEN", secret: true, parse: bootstrapToken(&c.AdminToken),
			help: "a token of the admin API for the first day and for emergencies, at least 32 random characters; operators " +
				"have tokens of their own (sluice token add), and can do without this one",
		},
		{
			name: "PAYMENT_WEBHOOK_SECRET", secret: true, parse: webhookSecrets(&c.WebhookSecrets),
			help: "what the payment provider signs webhooks with (Standard Webhooks): whsec_ and base64 of 24 to 64 bytes, " +
				"or several of them, separated by spaces, while one is being replaced; without it every webhook is refused",
		},
		{
			name: "ENCRYPTION_KEYS", secret: true, parse: encryptionKeys(&c.Encryption),
			help: "keys under which the secrets of endpoints are stored, as name:key, the key being the base64 of 32 bytes " +
				"(openssl rand -base64 32), separated by spaces; the first encrypts, all decrypt; without it secrets are stored " +
				"as they are",
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
			name: "SALE_RETENTION", fallback: "168h", parse: kept(&c.Retention.Sales, 24*time.Hour),
			help: "how long after its last order could be paid a sale leaves Redis, at least 24h; Postgres keeps all of it; " +
				"0: never",
		},
		{
			name: "ORDER_RETENTION", fallback: "0", parse: kept(&c.Retention.Orders, retention.Least),
			help: "how long after its sale left Redis an order is kept in Postgres, with its payments, at least 720h; then sums " +
				"of them are; 0: for ever",
		},
		{
			name: "RETENTION_EXPORT_DIR", parse: directory(&c.RetentionExport),
			help: "directory in which a worker writes what it drops from Postgres before it does, as JSON lines; off or empty: " +
				"nothing is written",
		},
		{
			name: "EVENT_RETENTION", fallback: webhook.KeepDelivered.String(), parse: checked(&c.Retention.Events,
				func(s string) (time.Duration, bool) {
					d, err := time.ParseDuration(s)
					return d, err == nil && d >= 24*time.Hour && d <= webhook.KeepWaiting
				}, "is not a time from 24h to 336h, which is how long events are kept for endpoints that are behind"),
			help: "how long events are kept that no endpoint is still to receive, 24h to 336h",
		},
		{
			name: "AUDIT_LOG_RETENTION", fallback: "0", parse: kept(&c.Retention.AuditLog, retention.Least),
			help: "how long a line of the audit log is kept, at least 720h; 0: for ever",
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

// bootstrapToken refuses what could be guessed, and repeats nothing of it.
func bootstrapToken(into *string) func(string) error {
	return func(s string) error {
		*into = s
		return operator.ValidateBootstrap(s)
	}
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

// kept takes 0, or no less than what others rely on: Redis must have a sale for a day, see db.Watermarks; for the rest
// see retention.Least.
func kept(into *time.Duration, least time.Duration) func(string) error {
	const most = 10 * 365 * 24 * time.Hour
	return checked(into, func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && (d == 0 || d >= least && d <= most)
	}, fmt.Sprintf("is neither 0 nor a time like 8760h, from %.0fh to %.0fh", least.Hours(), most.Hours()))
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
