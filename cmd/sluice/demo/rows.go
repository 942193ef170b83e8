package demo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// queryTimeout bounds one look at Postgres or Redis.
const queryTimeout = 10 * time.Second

// row is an order as it stands in Postgres.
type row struct {
	ID          string
	UserID      string
	Quantity    int
	Status      string
	PaymentID   string // empty: not paid
	Sequence    int64  // Redis' counter of accepts, after this one
	AcceptedAt  time.Time
	PersistedAt time.Time
}

// ledger reads the orders with a query of the demo's own, over a connection of its own: if the pipeline's code were wrong
// about what is there, this would not be.
type ledger struct {
	conn   *pgx.Conn
	saleID string
}

func openLedger(ctx context.Context, url, saleID string) (*ledger, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	return &ledger{conn, saleID}, nil
}

func (l *ledger) close() {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	_ = l.conn.Close(ctx) // nothing is lost
}

func (l *ledger) rows(ctx context.Context) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, err := l.conn.Query(ctx, `
		select id::text, user_id, quantity, status, coalesce(payment_id, ''), sequence, accepted_at, persisted_at
		from orders where sale_id = $1`, l.saleID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[row])
}

// persisted counts which of some orders have a row.
func (l *ledger) persisted(ctx context.Context, orderIDs []string) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = l.conn.QueryRow(ctx, `select count(*) from orders where sale_id = $1 and id = any($2::text[]::uuid[])`, l.saleID, orderIDs).Scan(&n)
	return n, err
}
