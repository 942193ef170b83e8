package db

import (
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// codeReadOnly is the answer to a write of a server that was the primary and is a standby now, or was told to take no
// writes any more (read_only_sql_transaction).
const codeReadOnly = "25006"

// preferPrimary has connections go to the server that takes writes, where DATABASE_URL names several and does not say
// which one is wanted (target_session_attrs).
func preferPrimary(config *pgx.ConnConfig) {
	if config.ValidateConnect == nil && namesSeveral(config) {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}

// namesSeveral looks at the hosts and ports: a fallback may also be the same server without TLS.
func namesSeveral(config *pgx.ConnConfig) bool {
	for _, f := range config.Fallbacks {
		if f.Host != config.Host || f.Port != config.Port {
			return true
		}
	}
	return false
}

// leaveDemoted drops the connection that was told so, and all that are idle, when a server takes no writes any more:
// the next call looks for the new primary. It returns where to put the pool once it is there.
func leaveDemoted(config *pgx.ConnConfig) *atomic.Pointer[pgxpool.Pool] {
	var connections atomic.Pointer[pgxpool.Pool]
	keep := config.OnPgError
	config.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code != codeReadOnly {
			return keep == nil || keep(conn, err)
		}
		if p := connections.Load(); p != nil {
			p.Reset()
		}
		return false
	}
	return &connections
}
