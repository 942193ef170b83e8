package db

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The statements whose plans a test looks at.
const (
	InsertQuery            = insertQuery
	ConflictsQuery         = conflictsQuery
	OrderQuery             = orderQuery
	LatestOrderQuery       = latestOrderQuery
	KnownQuery             = knownQuery
	UnappliedQuery         = unappliedQuery
	UnresolvedLettersQuery = unresolvedLettersQuery
	OrdersByIDQuery        = ordersByIDQuery
	UnsettledQuery         = unsettledQuery

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
