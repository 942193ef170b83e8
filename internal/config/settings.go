package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/pipeline"
)

// setting is one line of the table below. It is a flag.Value, so that a flag only notes its text.
type setting struct {
	name     string // of the environment variable; the flag is the same in lower case with dashes
	fallback string
	help     string
	required bool
	parse    func(text string) error // its error must not repeat a secret

	flagText *string // by flag
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
		{name: "DATABASE_URL", required: true, help: "Postgres, as postgres://user:password@host:port/database", parse: databaseURL(&c.DatabaseURL)},
		{name: "REDIS_URL", required: true, help: "Redis, as redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://", parse: redisURL(&c.RedisURL)},
		{name: "HTTP_ADDR", fallback: "127.0.0.1:8080", help: "where buyers' requests are served", parse: address(&c.HTTPAddr)},
		{name: "ADMIN_ADDR", help: "where health, metrics and the admin API are served; the api's default is 127.0.0.1:8081, a worker's a free loopback port", parse: address(&c.AdminAddr)},
		{name: "ADMIN_TOKEN", help: "bearer token of the admin API; without it nobody is let in", parse: text(&c.AdminToken)},
		{name: "PAYMENT_WEBHOOK_SECRET", help: "what the payment provider signs webhooks with (Standard Webhooks): whsec_ and base64 of 24 to 64 bytes, or several of them with spaces between while one is replaced; without it no webhook is taken", parse: webhookSecrets(&c.WebhookSecrets)},
		{name: "AUTH_MODE", fallback: "dev", help: "how buyers prove who they are: dev (header X-User-Id, for development only)", parse: oneOf(&c.AuthMode, "dev")},
		{name: "AUTH_DEV_FORCE", fallback: "false", help: "allow AUTH_MODE=dev where others can reach it", parse: boolean(&c.AuthDevForce)},
		{name: "PARTITIONS", fallback: "16", help: "partitions of Redis, fixed at install", parse: integer(&c.Partitions)},
		{name: "DURABILITY", fallback: "fsync", help: "what is confirmed before a buyer is told: memory, fsync (on Redis' disk) or replica (received by one as well); receipts tell what was", parse: oneOf(&c.Durability, pipeline.DurabilityMemory, pipeline.DurabilityFsync, pipeline.DurabilityReplica)},
		{name: "STREAM_MAX_LAG", fallback: strconv.Itoa(pipeline.DefaultStreamMaxLag), help: "orders of a partition that may wait for the workers; beyond, new ones are told to come back", parse: integer(&c.StreamMaxLag)},
		{name: "WORKER_BATCH_SIZE", fallback: "500", help: "orders per transaction", parse: integer(&c.Worker.BatchSize)},
		{name: "WORKER_CONCURRENCY", fallback: "2", help: "batches under way at once in a worker", parse: integer(&c.Worker.Concurrency)},
		{name: "BATCH_DEADLINE", fallback: "5s", help: "time for one batch; shorter than LOCK_TTL", parse: duration(&c.Worker.BatchDeadline)},
		{name: "LOCK_TTL", fallback: "10s", help: "life of an order's lock; shorter than CLAIM_MIN_IDLE", parse: duration(&c.Worker.LockTTL)},
		{name: "CLAIM_MIN_IDLE", fallback: "15s", help: "when an event that a living worker holds is taken from it", parse: duration(&c.Worker.ClaimMinIdle)},
		{name: "MAX_DELIVERIES", fallback: "10", help: "deliveries after which an event is processed alone", parse: integer(&c.Worker.MaxDeliveries)},
		{name: "WEBHOOK_ALLOW_PRIVATE", fallback: "false", help: "let endpoints of events be inside the network or on this machine, and without TLS", parse: boolean(&c.WebhookPrivate)},
		{name: "START_TIMEOUT", fallback: "30s", help: "how long to wait for Redis and Postgres at start", parse: duration(&c.StartTimeout)},
		{name: "SHUTDOWN_TIMEOUT", fallback: "15s", help: "how long to finish what is under way when told to stop", parse: duration(&c.ShutdownTimeout)},
		{name: "LOG_LEVEL", fallback: "info", help: "debug, info, warn or error", parse: level(&c.LogLevel)},
		{name: "LOG_FORMAT", fallback: "text", help: "text or json", parse: oneOf(&c.LogFormat, "text", "json")},
	}
}

func text(into *string) func(string) error {
	return func(s string) error { *into = s; return nil }
}

func oneOf[T ~string](into *T, allowed ...T) func(string) error {
	return func(s string) error {
		if !slices.Contains(allowed, T(s)) {
			return fmt.Errorf("%q is not one of %q", s, allowed)
		}
		*into = T(s)
		return nil
	}
}

func boolean(into *bool) func(string) error {
	return func(s string) error {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", s)
		}
		*into = b
		return nil
	}
}

func integer(into *int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 1<<31-1 {
			return fmt.Errorf("%q is not a whole number from 1 to %d", s, 1<<31-1)
		}
		*into = n
		return nil
	}
}

func duration(into *time.Duration) func(string) error {
	return func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 || d > time.Hour {
			return fmt.Errorf("%q is not a time like 500ms or 5s, up to 1h", s)
		}
		*into = d
		return nil
	}
}

func level(into *slog.Level) func(string) error {
	return func(s string) error {
		if err := into.UnmarshalText([]byte(s)); err != nil {
			return fmt.Errorf("%q is not one of debug, info, warn, error", s)
		}
		return nil
	}
}

func address(into *string) func(string) error {
	return func(s string) error {
		_, port, err := net.SplitHostPort(s)
		if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 0 || n > 65535 {
			return fmt.Errorf("%q is not host:port", s)
		}
		*into = s
		return nil
	}
}

// databaseURL and redisURL check the form only, and never repeat the text: it holds a password.
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
