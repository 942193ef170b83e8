package db

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A machine that vanishes closes no connection. Each side asks the other for a sign of life, so that this process finds
// a server that is gone, and the server ends a session that nobody has any more: 15 s + 3 × 5 s after the last sign. A
// transaction that it has left open ends before, see Options.IdleTimeout.
const (
	keepaliveIdle     = 15 * time.Second // silence after which the other side is asked
	keepaliveInterval = 5 * time.Second  // between two questions
	keepaliveCount    = 3                // questions without an answer
	// unacknowledged is how long a server's answer may stay without a sign that it arrived. Keepalives are not sent
	// while one does.
	unacknowledged = keepaliveIdle + keepaliveCount*keepaliveInterval
)

// keepalive is the process' side.
var keepalive = net.KeepAliveConfig{
	Enable: true, Idle: keepaliveIdle, Interval: keepaliveInterval, Count: keepaliveCount,
}

// vanishedSettings are the server's side. What somebody has set already, in DATABASE_URL, for the role, for the
// database or for the server, stays; so does what a server does not know.
var vanishedSettings = fmt.Sprintf(`
	select set_config(name, value, false)
	from (values ('tcp_keepalives_idle', '%d'), ('tcp_keepalives_interval', '%d'), ('tcp_keepalives_count', '%d'),
		('tcp_user_timeout', '%d')) as ours (name, value)
	join pg_settings using (name) where source = 'default'`,
	int(keepaliveIdle.Seconds()), int(keepaliveInterval.Seconds()), keepaliveCount, unacknowledged.Milliseconds())

// oneByOne has Citus run the parts of a statement that concerns several nodes one after the other. Side by side is for
// statements that take long, and a transaction of such a kind may not change a table that every node has. To a Postgres
// without Citus the name means nothing.
const oneByOne = `select set_config('citus.multi_shard_modify_mode', 'sequential', false)`

// noticeVanished makes the server notice it when this process' machine vanishes. It is a statement and no parameter of
// the start, because a pooler refuses connections for parameters that it does not know; behind one, the settings are
// those of the pooler's own connection, where they mean the same. It is one message in the simple protocol, which every
// pooler passes on.
func noticeVanished(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	_, err := conn.PgConn().Exec(ctx, tellWarnings+"; "+oneByOne+"; "+strings.TrimSpace(vanishedSettings)).ReadAll()
	return err
}
