package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgres is one direct connection for what only an operator reads: facts about the server itself, and rows that no
// stage of the pipeline reads in this form. It changes nothing.
type postgres struct{ conn *pgx.Conn }

func dialPostgres(ctx context.Context, url string) (*postgres, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, unavailable(err, "Postgres does not answer")
	}
	return &postgres{conn}, nil
}

func (p *postgres) close() {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	_ = p.conn.Close(ctx) // nothing is lost
}

// one reads one row; found is false where there is none, or no such table yet.
func (p *postgres) one(ctx context.Context, query string, into ...any) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	err = p.conn.QueryRow(ctx, query).Scan(into...)
	var refused *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.As(err, &refused) && refused.Code == "42P01": // undefined_table
		return false, nil
	case err != nil:
		return false, unavailable(err, "Postgres did not answer a question")
	}
	return true, nil
}

// each scans each row and calls fn.
func (p *postgres) each(ctx context.Context, query string, into []any, fn func()) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	rows, err := p.conn.Query(ctx, query)
	if err != nil {
		return unavailable(err, "Postgres did not answer a question")
	}
	if _, err = pgx.ForEachRow(rows, into, func() error {
		fn()
		return nil
	}); err != nil {
		return unavailable(err, "Postgres did not answer a question")
	}
	return nil
}

// partitions is how many the installation was made with; 0 where that is still open.
func (p *postgres) partitions(ctx context.Context) (n int, err error) {
	_, err = p.one(ctx, `select partitions from installation`, &n)
	return n, err
}

// storedSecret is what is stored of the secret of an endpoint.
type storedSecret struct {
	id          int64
	url, secret string
	withheld    string // why events wait that can't be signed; empty: they don't
}

// endpointSecrets returns those of all endpoints; of none where there is no such table yet.
func (p *postgres) endpointSecrets(ctx context.Context) ([]storedSecret, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	rows, _ := p.conn.Query(ctx, `
		select id, url, secret, case when disabled_at is null and attempts = 0 then last_error else '' end
		from endpoints order by id`) // CollectRows has the error
	stored, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s storedSecret, err error) {
		return s, row.Scan(&s.id, &s.url, &s.secret, &s.withheld)
	})
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == "42P01": // undefined_table
		return nil, nil
	case err != nil:
		return nil, unavailable(err, "Postgres did not answer a question")
	}
	return stored, nil
}

// clock is the server's time at the moment it answered.
func (p *postgres) clock(ctx context.Context) (at time.Time, err error) {
	_, err = p.one(ctx, `select clock_timestamp()`, &at)
	return at, err
}

// release is a row of the outbox by which an order gives its units back.
type release struct {
	Sequence  int64      `json:"sequence"`
	Reason    string     `json:"reason"`
	Quantity  int        `json:"quantity"`
	CreatedAt time.Time  `json:"created_at"`
	AppliedAt *time.Time `json:"applied_at"`
	Withdrawn bool       `json:"withdrawn"` // only the slot goes back, the units do not go on sale again
}
