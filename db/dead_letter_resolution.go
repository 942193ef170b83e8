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

// BeginReplay stores the order id and the request of a replay in the letter's row, unless an earlier try has stored its
// own, and returns what is stored. Errors: KindNotFound, KindConflict (the letter is resolved).
func (s *Store) BeginReplay(
	ctx context.Context, id int64, orderID string, as deadletter.ReplayAs,
) (string, deadletter.ReplayAs, error) {
	wanted, err := json.Marshal(as)
	if err != nil {
		return "", deadletter.ReplayAs{}, pipeline.Wrap(pipeline.KindData, err, "begin a replay")
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	type replay struct{ order, as string }
	stored, err := queryOne(ctx, s, "begin a replay", func(row pgx.CollectableRow) (r replay, err error) {
		return r, row.Scan(&r.order, &r.as)
	}, `
		update dead_letters
		set replay_order_id = coalesce(replay_order_id, $2::text::uuid), replay_as = coalesce(replay_as, $3::text::jsonb)
		where id = $1 and resolved_at is null
		returning replay_order_id::text, replay_as::text`, id, orderID, string(wanted))
	if errors.Is(err, pgx.ErrNoRows) {
		return "", deadletter.ReplayAs{}, s.whyUnresolvable(ctx, id)
	}
	if err != nil {
		return "", deadletter.ReplayAs{}, err
	}
	var storedAs deadletter.ReplayAs
	if err := json.Unmarshal([]byte(stored.as), &storedAs); err != nil {
		return "", deadletter.ReplayAs{}, pipeline.Wrap(pipeline.KindUnavailable, err,
			"dead letter: its replay can't be read")
	}
	return stored.order, storedAs, nil
}

// EndReplay deletes the request of a replay that made no order. The order id stays for the next one: should the first
// call reach Redis late after all, the two are still one order.
func (s *Store) EndReplay(ctx context.Context, id int64) error {
	const query = `update dead_letters set replay_as = null where id = $1 and resolved_at is null`
	_, err := s.exec(ctx, "end a replay", query, id)
	return err
}

// ResolveLetter resolves a letter and writes the line of the audit log, in one statement. A letter whose replay has no
// known outcome can't be discarded: its order may stand. Errors: KindNotFound, KindConflict, KindData (a text that
// Postgres refuses).
func (s *Store) ResolveLetter(ctx context.Context, id int64, how deadletter.LetterResolution) (time.Time, error) {
	detail, err := resolutionDetail(id, how)
	if err != nil {
		return time.Time{}, err
	}
	at, err := queryOne(ctx, s, "resolve a dead letter", pgx.RowTo[time.Time], `
		with resolved as (
			update dead_letters
			set resolved_at = now(), resolution = $2, note = $3, replay_order_id = coalesce($4::text::uuid, replay_order_id),
				replay_as = null
			where id = $1 and resolved_at is null and ($2 = 'replayed' or replay_as is null)
			returning resolved_at
		), logged as (
			insert into audit_log (actor, action, sale_id, detail)
			select $5, $6, nullif($7, ''), $8::text::jsonb from resolved
		)
		select resolved_at from resolved`,
		id, how.Resolution, how.Note, optionalText(how.OrderID),
		how.Actor, resolutionAction(how.Resolution), how.SaleID, detail)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, s.whyUnresolvable(ctx, id)
	}
	return at.UTC(), err
}

// whyUnresolvable is the reason why a letter can't be resolved now.
func (s *Store) whyUnresolvable(ctx context.Context, id int64) error {
	letter, err := s.Letter(ctx, id)
	switch {
	case err != nil:
		return err
	case letter.Resolution != "":
		return pipeline.Errorf(pipeline.KindConflict, "dead letter %d is resolved", id)
	default:
		return pipeline.Errorf(pipeline.KindConflict,
			"a replay of dead letter %d was begun as order %s, and its outcome is not known; repeat the replay first",
			id, letter.ReplayID)
	}
}

// resolutionAction names what was done, for the audit log.
func resolutionAction(r deadletter.Resolution) string {
	if r == deadletter.Replayed {
		return "replay"
	}
	return "discard"
}

// resolutionState is what a resolution changes of a letter, as the audit log has it.
type resolutionState struct {
	Resolution *deadletter.Resolution `json:"resolution"` // null: it waits
}

// resolutionDetail is what was done, as JSON for the audit log.
func resolutionDetail(id int64, how deadletter.LetterResolution) (string, error) {
	detail, err := json.Marshal(struct {
		Letter  int64             `json:"dead_letter"`
		OrderID string            `json:"order_id,omitempty"`
		Set     map[string]string `json:"set,omitempty"`
		Note    string            `json:"note,omitempty"`

		Before resolutionState `json:"before"`
		After  resolutionState `json:"after"`
	}{id, how.OrderID, how.Repairs, how.Note, resolutionState{}, resolutionState{&how.Resolution}})
	if err != nil {
		return "", pipeline.Wrap(pipeline.KindData, err, "audit log: detail")
	}
	return string(detail), nil
}
