package db

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
)

const letterColumns = `id, created_at, resolved_at, coalesce(resolution, ''), note, coalesce(replay_order_id::text, ''),
	partition, entry_id, sale_id, order_id, reason, error, deliveries`

// unresolvedLettersQuery relies on dead_letters_unresolved_idx, which is as small as the backlog.
const unresolvedLettersQuery = `
select ` + letterColumns + ` from dead_letters
where resolved_at is null and id > $1 and ($2 = '' or sale_id = $2) and ($3 = '' or reason = $3)
order by id limit $4`

// allLettersQuery relies on dead_letters_pkey. A filter that few letters match reads on to the end: an operator may
// wait.
const allLettersQuery = `
select ` + letterColumns + ` from dead_letters
where id > $1 and ($2 = '' or sale_id = $2) and ($3 = '' or reason = $3)
order by id limit $4`

// Letters returns dead letters in the order of their ids, the newest last, at most deadletter.MaxLetters, without
// payloads.
func (s *Store) Letters(ctx context.Context, filter deadletter.Filter) ([]deadletter.Letter, error) {
	if filter.Limit <= 0 || filter.Limit > deadletter.MaxLetters {
		filter.Limit = deadletter.MaxLetters
	}
	query := unresolvedLettersQuery
	if filter.All {
		query = allLettersQuery
	}
	scan := func(row pgx.CollectableRow) (deadletter.Letter, error) { return scanLetter(row) }
	return queryAll(ctx, s, "dead letters", scan, query,
		filter.After, letterText(filter.SaleID), letterText(filter.Reason), filter.Limit)
}

// CountUnresolvedLetters counts the dead letters that no operator has resolved. It relies on
// dead_letters_unresolved_idx, which is as small as their number.
func (s *Store) CountUnresolvedLetters(ctx context.Context) (int64, error) {
	const query = `select count(*) from dead_letters where resolved_at is null`
	return queryValue[int64](ctx, s, "unresolved dead letters", query)
}

// Letter returns one dead letter with its payload, or a KindNotFound error.
func (s *Store) Letter(ctx context.Context, id int64) (deadletter.Letter, error) {
	var payload string
	letter, err := queryOne(ctx, s, "dead letter", func(row pgx.CollectableRow) (deadletter.Letter, error) {
		return scanLetter(row, &payload)
	}, `select `+letterColumns+`, payload::text from dead_letters where id = $1`, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return letter, pipeline.Errorf(pipeline.KindNotFound, "there is no dead letter %d", id)
	}
	if err != nil {
		return letter, err
	}
	return letter, readPayload(payload, &letter)
}

func readPayload(payload string, into *deadletter.Letter) error {
	if err := json.Unmarshal([]byte(payload), &into.Payload); err != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "dead letter: its payload can't be read")
	}
	return nil
}

// scanLetter reads letterColumns, and what the query selects after them.
func scanLetter(row pgx.CollectableRow, more ...any) (deadletter.Letter, error) {
	var l deadletter.Letter
	var resolved *time.Time
	err := row.Scan(append([]any{
		&l.ID, &l.CreatedAt, &resolved, &l.Resolution, &l.Note, &l.ReplayID,
		&l.Partition, &l.EntryID, &l.SaleID, &l.OrderID, &l.Reason, &l.Error, &l.Deliveries,
	}, more...)...)
	l.CreatedAt, l.ResolvedAt = l.CreatedAt.UTC(), timeOrZero(resolved)
	return l, err
}
