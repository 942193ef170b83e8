package db

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

const letterColumns = `id, created_at, resolved_at, coalesce(resolution, ''), note, coalesce(replay_order_id::text, ''),
	partition, entry_id, sale_id, order_id, reason, error, deliveries`

// waitingQuery relies on dead_letters_unresolved_idx, which is as small as what waits.
const waitingQuery = `
select ` + letterColumns + ` from dead_letters
where resolved_at is null and id > $1 and ($2 = '' or sale_id = $2) and ($3 = '' or reason = $3)
order by id limit $4`

// allLettersQuery relies on dead_letters_pkey. A filter that few letters match reads on to the end: an operator may wait.
const allLettersQuery = `
select ` + letterColumns + ` from dead_letters
where id > $1 and ($2 = '' or sale_id = $2) and ($3 = '' or reason = $3)
order by id limit $4`

// Letters returns dead letters in the order of their ids, the newest last, at most pipeline.MaxLetters, without payloads.
func (s *Store) Letters(ctx context.Context, filter pipeline.LettersFilter) ([]pipeline.Letter, error) {
	if filter.Limit <= 0 || filter.Limit > pipeline.MaxLetters {
		filter.Limit = pipeline.MaxLetters
	}
	query := waitingQuery
	if filter.All {
		query = allLettersQuery
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, query, filter.After, letterText(filter.SaleID), letterText(filter.Reason), filter.Limit)
	if err != nil {
		return nil, wrap(err, "dead letters")
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (pipeline.Letter, error) { return scanLetter(row) })
	return letters, wrap(err, "dead letters")
}

// Letter returns one dead letter with its payload, or a KindNotFound error.
func (s *Store) Letter(ctx context.Context, id int64) (pipeline.Letter, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, `select `+letterColumns+`, payload::text from dead_letters where id = $1`, id)
	if err != nil {
		return pipeline.Letter{}, wrap(err, "dead letter")
	}
	var payload string
	letter, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (pipeline.Letter, error) {
		return scanLetter(row, &payload)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return letter, unknownLetter(id)
	}
	if err != nil {
		return letter, wrap(err, "dead letter")
	}
	if err := json.Unmarshal([]byte(payload), &letter.Payload); err != nil {
		return letter, pipeline.Wrap(pipeline.KindUnavailable, err, "dead letter: its payload can't be read")
	}
	return letter, nil
}

func unknownLetter(id int64) error {
	return pipeline.Errorf(pipeline.KindNotFound, "there is no dead letter %d", id)
}

// scanLetter reads letterColumns, and what the query selects after them.
func scanLetter(row pgx.CollectableRow, more ...any) (pipeline.Letter, error) {
	var l pipeline.Letter
	var resolved *time.Time
	err := row.Scan(append([]any{&l.ID, &l.CreatedAt, &resolved, &l.Resolution, &l.Note, &l.ReplayID,
		&l.Partition, &l.EntryID, &l.SaleID, &l.OrderID, &l.Reason, &l.Error, &l.Deliveries}, more...)...)
	l.CreatedAt, l.ResolvedAt = l.CreatedAt.UTC(), timeOrZero(resolved)
	return l, err
}
