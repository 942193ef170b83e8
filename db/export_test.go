package db

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/pipeline/auditlog"
	"sluice/pipeline/lifecycle"
)

// The statements whose plans a test looks at.
const (
	InsertQuery            = insertQuery
	ConflictsQuery         = conflictsQuery
	TakenNumbersQuery      = takenNumbersQuery
	OverdueQuery           = overdueQuery
	OrderQuery             = orderQuery
	LatestOrderQuery       = latestOrderQuery
	KnownQuery             = knownQuery
	UnappliedQuery         = unappliedQuery
	UnresolvedLettersQuery = unresolvedLettersQuery
	OrdersByIDQuery        = ordersByIDQuery
	SettledQuery           = settledQuery
	LetteredQuery          = letteredQuery

	OrdersToDropQuery = ordersToDropQuery
	OldPaymentsQuery  = oldPaymentsQuery
	OldLogQuery       = oldLogQuery

	KnownPaymentQuery    = knownPaymentQuery
	WaitingPaymentsQuery = waitingPaymentsQuery
	PaymentsQuery        = paymentsQuery
	OrderPaymentsQuery   = orderPaymentsQuery
)

// LeaseTTL is how long an election outlives its holder.
const LeaseTTL = leaseTTL

// WithConn lends a connection of the pool.
func (s *Store) WithConn(ctx context.Context, do func(*pgxpool.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return do(conn)
}

// OrderListQuery is the statement behind a page of orders, with its values as literals, and the settings that it is
// planned with, for a session.
func OrderListQuery(filter *lifecycle.OrderFilter, look, limit int) (query, values, settings string) {
	query, args := orderListQuery(filter, look, limit)
	settings = "select"
	if !isLookup(filter) {
		settings = strings.ReplaceAll(inOrderOfAnIndex, "true", "false")
	}
	return query, literals(args), settings
}

// literals writes values as SQL.
func literals(args []any) string {
	texts := make([]string, len(args))
	for i, arg := range args {
		switch value := arg.(type) {
		case string:
			texts[i] = "'" + value + "'"
		case time.Time:
			texts[i] = "'" + value.Format(time.RFC3339Nano) + "'"
		case []string:
			texts[i] = "'{" + strings.Join(value, ",") + "}'"
		default:
			texts[i] = fmt.Sprint(value)
		}
	}
	return strings.Join(texts, ", ")
}

// AuditLogQuery is the statement behind a page of the audit log, with its values as literals.
func AuditLogQuery(filter *auditlog.Filter) (query, values string, err error) {
	query, args, err := auditLogQuery(filter)
	return query, literals(args), err
}
