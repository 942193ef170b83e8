package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"sluice/internal/buyers"
)

// homeLimit bounds how long Postgres takes to have again what it has forgotten. Another fault may keep Redis away.
const homeLimit = 2 * time.Minute

// restorePostgres has Postgres come back from a power cut with the data of a moment before, as from a backup. What it
// had since is only in Redis then. The programs find that out, and store it again.
func (r *run) restorePostgres(s step) fault {
	server := r.system.servers.Postgres
	return fault{
		do: func(ctx context.Context) (int, error) {
			if err := server.Kill(); err != nil {
				return 0, err
			}
			saved, err := server.SaveData()
			if err := errors.Join(err, server.Restart(ctx)); err != nil {
				return 0, err
			}
			r.awaitPersisted(ctx)
			buyers.Sleep(ctx, between(s.Random, leastLag, mostLag))
			if err := server.Kill(); err != nil {
				return 0, err
			}
			return hit(server.RestoreData(saved))
		},
		undo: func(ctx context.Context) (int, error) {
			if err := server.Restart(ctx); err != nil {
				return 0, err
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), homeLimit)
			defer cancel()
			return 0, r.awaitExamined(ctx)
		},
	}
}

// awaitPersisted waits for an order that Postgres did not have when it came back: one to lose.
func (r *run) awaitPersisted(ctx context.Context) {
	began, err := uuid.NewV7() // as the APIs make them, whose clocks are right
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		var persisted bool
		err := r.system.pool.QueryRow(ctx, `select exists (select from orders where sale_id = $1 and id > $2)`,
			bigSale, began).Scan(&persisted)
		if err == nil && persisted {
			return
		}
		buyers.Sleep(ctx, wholeEvery)
	}
}

// awaitExamined waits until the server has all that Redis knows of, or is found to lack nothing.
func (r *run) awaitExamined(ctx context.Context) error {
	for {
		var examined bool
		err := r.system.pool.QueryRow(ctx, `
			select exists (select from examined_server where identity = server_identity())
				and not exists (select from ledger_losses where finished_at is null)`).Scan(&examined)
		if err == nil && examined {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(errors.New("Postgres was not given back what it had forgotten"), err, ctx.Err())
		}
		buyers.Sleep(ctx, wholeEvery)
	}
}
