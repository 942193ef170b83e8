package db

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/erasure"
)

// lockErasureQuery lets the steps of an erasure pass one by one.
const lockErasureQuery = `
select user_id, pseudonym from buyer_erasures where id = $1 and user_id is not null for no key update`

// eraseInSale are the changes in a sale that has left Redis: of $1 the buyer $2 becomes $3. Orders and releases go
// together, because an audit compares them. $4 are the buyer's orders.
var eraseInSale = []string{
	`update orders set user_id = $3 where sale_id = $1 and id = any($4::text[]::uuid[]) and user_id = $2`,
	`update releases set user_id = $3 where sale_id = $1 and order_id = any($4::text[]::uuid[]) and user_id = $2`,
	`update waitlist set user_id = $3 where sale_id = $1 and user_id = $2 and $4::text[] is not null`,
	`update payments set user_id = $3 where sale_id = $1 and order_id = any($4::text[]::uuid[]) and user_id = $2`,
	`update outbox set data = jsonb_set(data, '{user_id}', to_jsonb($3::text))
	where sale_id = $1 and order_id = any($4::text[]::uuid[]) and data ->> 'user_id' = $2`,
}

// Erase replaces a buyer's id by its pseudonym in all sales that have left Redis, and where Redis has none of the
// buyer's sales, everywhere else; then the id is forgotten. held says whether Redis has a slot of the buyer, of which
// there may be no row yet. Each sale is one transaction. Calling it again goes on. Errors: KindNotFound,
// KindUnavailable; those of held.
func (s *Store) Erase(ctx context.Context, id int64, held erasure.Held) (erasure.Erasure, error) {
	ctx, cancel := deadline(ctx, snapshotTimeout)
	defer cancel()
	type saleOfBuyer struct {
		ID      string
		InRedis bool
	}
	sales, err := queryAll(ctx, s, "sales of a buyer", pgx.RowToStructByPos[saleOfBuyer],
		`select s.* from buyer_erasures e cross join lateral (`+salesOf("e.user_id")+`) s where e.id = $1`, id)
	if err != nil {
		return erasure.Erasure{}, err
	}
	waits := 0
	for _, sale := range sales {
		if sale.InRedis {
			waits++
			continue
		}
		if err := s.eraseStep(ctx, id, func(e *eraseTx) error { return e.sale(ctx, sale.ID) }); err != nil {
			return erasure.Erasure{}, err
		}
	}
	if waits == 0 { // before the rows are counted: an accept that is in neither place does not exist
		if waits, err = s.slotsHeld(ctx, id, held); err != nil {
			return erasure.Erasure{}, err
		}
	}
	err = s.eraseStep(ctx, id, func(e *eraseTx) error { return e.finish(ctx, waits) })
	if err != nil {
		return erasure.Erasure{}, err
	}
	return s.Erasure(ctx, id)
}

// slotsHeld counts the sales in which Redis has a slot of a buyer who is to be erased.
func (s *Store) slotsHeld(ctx context.Context, id int64, held erasure.Held) (int, error) {
	user, err := queryAll(ctx, s, "a buyer", pgx.RowTo[string],
		`select user_id from buyer_erasures where id = $1 and user_id is not null`, id)
	if err != nil || len(user) == 0 {
		return 0, err
	}
	sales, err := queryAll(ctx, s, "sales in Redis", func(row pgx.CollectableRow) (*pipeline.Sale, error) {
		sale, err := scanSale(row)
		return &sale, err
	}, `select `+saleColumns+` from sales
		where (retired_at is null or cleared_in is null) and coalesce(loading_at, loaded_at) is not null`)
	if err != nil {
		return 0, err
	}
	count := 0
	for _, sale := range sales {
		has, err := held(ctx, sale, user[0])
		if err != nil {
			return 0, err
		}
		if has {
			count++
		}
	}
	return count, nil
}

// eraseStep runs a step of an erasure that is not finished, in a transaction that counts the rows.
func (s *Store) eraseStep(ctx context.Context, id int64, step func(*eraseTx) error) error {
	err := s.transaction(ctx, func(tx pgx.Tx) error {
		if err := allowLong(ctx, tx); err != nil {
			return err
		}
		e := eraseTx{tx: tx, id: id}
		found, err := collect(ctx, tx, func(row pgx.CollectableRow) (bool, error) {
			return true, row.Scan(&e.user, &e.pseudonym)
		}, lockErasureQuery, id)
		if err != nil || len(found) == 0 {
			return err
		}
		if err := step(&e); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `update buyer_erasures set rows = rows + $2 where id = $1`, id, e.rows)
		return err
	})
	return wrap(err, "erase a buyer")
}

// eraseTx is the transaction of one step.
type eraseTx struct {
	tx              pgx.Tx
	id              int64
	user, pseudonym string
	rows            int64
}

func (e *eraseTx) exec(ctx context.Context, query string, args ...any) error {
	tag, err := e.tx.Exec(ctx, query, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
	e.rows += tag.RowsAffected()
	return err
}

// sale erases the buyer in one sale, unless it came back to Redis since.
func (e *eraseTx) sale(ctx context.Context, saleID string) error {
	const gone = `select true from sales where id = $1 and retired_at is not null and cleared_in is not null for share`
	if found, err := collect(ctx, e.tx, pgx.RowTo[bool], gone, saleID); err != nil || len(found) == 0 {
		return err
	}
	orders, err := collect(ctx, e.tx, pgx.RowTo[string], `
		select o.id::text from sales every cross join lateral (`+ordersOfBuyer("$1")+`) o where every.id = $2`,
		e.user, saleID)
	if err != nil {
		return err
	}
	orders = append([]string{}, orders...) // an array, even without any
	for _, query := range eraseInSale {
		if err := e.exec(ctx, query, saleID, e.user, e.pseudonym, orders); err != nil {
			return err
		}
	}
	return nil
}

// place is a column in which an id may stand.
type place struct {
	table, key, keyType, column string
	sale                        string // of the row, by which Postgres may be distributed; '' where it has none
	kind                        erasure.Kind
	among                       string // the rows that can be meant
}

// elsewhere are the places beside the buyer's sales: reports that fit no order, events of orders that were dropped,
// what operators wrote, and what they were answered. Of payments, which are many, an index has the rows.
var elsewhere = []place{
	{"payments", "id", "bigint", "user_id", "sale_id", erasure.Text, "outcome in ('refused', 'repeated')"},
	{"payments", "id", "bigint", "user_id", "sale_id", erasure.Text, "outcome in ('waiting', 'refund_due')"},
	{"payments", "id", "bigint", "detail", "sale_id", erasure.Text, "outcome in ('refused', 'repeated')"},
	{"refunds", "id", "bigint", "detail", "sale_id", erasure.Text, "true"},
	{"refunds", "id", "bigint", "note", "sale_id", erasure.Text, "true"},
	{"dead_letters", "id", "bigint", "payload", "sale_id", erasure.JSON, "true"},
	{"dead_letters", "id", "bigint", "replay_as", "sale_id", erasure.JSON, "true"},
	{"dead_letters", "id", "bigint", "error", "sale_id", erasure.Text, "true"},
	{"dead_letters", "id", "bigint", "note", "sale_id", erasure.Text, "true"},
	{"audit_log", "id", "bigint", "detail", "''", erasure.JSON, "true"},
	{"operator_requests", "id", "bigint", "body", "''", erasure.Bytes, "true"},
	{"sales", "id", "text", "note", "id", erasure.Text, "true"},
	{
		"outbox", "id", "bigint", "data", "sale_id", erasure.JSON,
		"order_id is not null and sale_id in (select s.id from sales s where s.orders_dropped_at is not null)",
	},
}

// finish erases the buyer everywhere else and forgets the id, once no sale is waited for, and none names the buyer: one
// may have come back to Redis before it could be erased there, or got its order since.
func (e *eraseTx) finish(ctx context.Context, waits int) error {
	if waits == 0 {
		const left = `select count(*) from (`
		if err := e.tx.QueryRow(ctx, left+salesOf("$1")+`) s`, e.user).Scan(&waits); err != nil {
			return err
		}
	}
	if waits > 0 {
		_, err := e.tx.Exec(ctx, `update buyer_erasures set looked_at = now(), waits_for = $2 where id = $1`, e.id, waits)
		return err
	}
	for _, in := range elsewhere {
		if err := e.place(ctx, in); err != nil {
			return err
		}
	}
	_, err := e.tx.Exec(ctx, `
		update buyer_erasures set user_id = null, looked_at = now(), waits_for = 0, finished_at = now() where id = $1`, e.id)
	return err
}

// jsonText is a text as it stands in a JSON document, without the quotes.
func jsonText(text string) string {
	encoded, _ := json.Marshal(text) // a string always can be
	return string(encoded[1 : len(encoded)-1])
}

// place replaces the id in a column. The words around it are looked at here, because ann is not in joanna.
func (e *eraseTx) place(ctx context.Context, in place) error {
	text, back, has := in.column+"::text", "$3::text", "strpos("+in.column+"::text, $%d) > 0"
	switch in.kind {
	case erasure.JSON:
		back = "$3::text::jsonb"
	case erasure.Bytes:
		text, back = "convert_from("+in.column+", 'UTF8')", "convert_to($3::text, 'UTF8')"
		has = "position(convert_to($%d::text, 'UTF8') in " + in.column + ") > 0"
	case erasure.Text:
	}
	type found struct{ Sale, Key string }
	rows, err := collect(ctx, e.tx, pgx.RowToStructByPos[found], `
		select `+in.sale+`, `+in.key+`::text from `+in.table+`
		where `+in.among+` and (`+fmt.Sprintf(has, 1)+` or `+fmt.Sprintf(has, 2)+`)`, e.user, jsonText(e.user))
	if err != nil {
		return err
	}
	which := ` where ` + in.key + ` = $1::text::` + in.keyType + ` and ` + in.sale + ` = $2::text`
	for _, row := range rows {
		// What it is by now: it is locked with its sale's name, because rows of several nodes can't be locked at once.
		values, err := collect(ctx, e.tx, pgx.RowTo[string],
			`select `+text+` from `+in.table+which+` for no key update`, row.Key, row.Sale)
		if err != nil {
			return err
		}
		for _, is := range values { // one, or none if the row is gone
			value, replaced := erasure.Replace(in.kind, is, e.user, e.pseudonym)
			if in.column == "user_id" {
				value, replaced = e.pseudonym, is == e.user
			}
			if !replaced {
				continue
			}
			query := `update ` + in.table + ` set ` + in.column + ` = ` + back + which
			if err := e.exec(ctx, query, row.Key, row.Sale, value); err != nil {
				return err
			}
		}
	}
	return nil
}
