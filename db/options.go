package db

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/pipeline"
)

// Options bound what a Store may take from Postgres. Zero values get the defaults.
type Options struct {
	// ApplicationName is what pg_stat_activity shows; default "sluice".
	ApplicationName string
	// MaxConns is the size of the pool; default 8, at most 100 (Postgres' own default for the whole server). A worker
	// persists a few batches at once, an API process only reads: more connections would not be faster.
	MaxConns int
	// StatementTimeout is how long Postgres works on one statement; default 4 s, below the batch deadline of 5 s, so that
	// the server gives up before the client does and nothing goes on unseen.
	StatementTimeout time.Duration
	// LockTimeout is how long a statement waits for one lock; default 2 s. It must be less than StatementTimeout, or the
	// log would not distinguish a slow statement from a blocked one.
	LockTimeout time.Duration
	// IdleTimeout is how long a transaction may sit idle before Postgres ends it and frees its locks; default 10 s. It
	// applies when this process hangs between two statements.
	IdleTimeout time.Duration
}

const (
	// connectTimeout bounds one attempt to connect: short, because callers retry.
	connectTimeout = 3 * time.Second
	// maxConnsLimit keeps one process from taking a whole default Postgres.
	maxConnsLimit = 100
	// connLifetime renews connections, so that a pool finds its way back to a server that was replaced; the jitter keeps
	// them from all doing so at once.
	connLifetime       = 30 * time.Minute
	connLifetimeJitter = 5 * time.Minute
)

func (o Options) withDefaults() Options {
	if o.ApplicationName == "" {
		o.ApplicationName = "sluice"
	}
	if o.MaxConns == 0 {
		o.MaxConns = 8
	}
	if o.StatementTimeout == 0 {
		o.StatementTimeout = 4 * time.Second
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = min(2*time.Second, o.StatementTimeout/2)
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 10 * time.Second
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.MaxConns < 1 || o.MaxConns > maxConnsLimit:
		return pipeline.Errorf(pipeline.KindInvalid, "database connections %d: use 1 to %d", o.MaxConns, maxConnsLimit)
	case o.LockTimeout < time.Millisecond || o.LockTimeout >= o.StatementTimeout:
		return pipeline.Errorf(pipeline.KindInvalid,
			"lock timeout %s: use 1ms or more, and less than the statement timeout %s",
			o.LockTimeout, o.StatementTimeout)
	case o.IdleTimeout < time.Millisecond:
		return pipeline.Errorf(pipeline.KindInvalid, "idle timeout %s: use 1ms or more", o.IdleTimeout)
	}
	return nil
}

// apply writes the options into a pool's configuration.
func (o Options) apply(config *pgxpool.Config) {
	config.MaxConns = int32(o.MaxConns)
	config.MaxConnLifetime = connLifetime
	config.MaxConnLifetimeJitter = connLifetimeJitter
	config.ConnConfig.ConnectTimeout = connectTimeout
	config.ConnConfig.DialFunc = (&net.Dialer{KeepAliveConfig: keepalive}).DialContext
	config.AfterConnect = noticeVanished
	config.ConnConfig.OnNotice = noticeUnconfirmed
	params := config.ConnConfig.RuntimeParams
	inOptions := params["options"] // -c name=value …, which a parameter of its own would overrule
	for name, value := range o.runtimeParams() {
		if _, ok := params[name]; !ok && !strings.Contains(inOptions, name+"=") { // the URL's setting wins
			params[name] = value
		}
	}
}

// runtimeParams are settings of each session, sent when it starts.
func (o Options) runtimeParams() map[string]string {
	return map[string]string{
		"application_name":                    o.ApplicationName,
		"statement_timeout":                   milliseconds(o.StatementTimeout),
		"lock_timeout":                        milliseconds(o.LockTimeout),
		"idle_in_transaction_session_timeout": milliseconds(o.IdleTimeout),
		// An event is acknowledged once its order is committed: the commit must be on disk whatever the server's default.
		"synchronous_commit": "on",
		// The persist statement adds to the newest version of a sale's row. In a stricter level it would fail and be
		// retried whenever two workers meet.
		"default_transaction_isolation": "read committed",
		// Statements take milliseconds. To compile one takes a hundred, and a table that was never analyzed looks as if
		// it were worth it.
		"jit": "off",
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
