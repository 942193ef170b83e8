package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"sluice/internal/buyers"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/recovery"
)

const (
	// repairEvery is the time between two attempts at a repair: a verification may be under way, or a store away.
	repairEvery = 200 * time.Millisecond
	// repairLimit bounds the repair of all sales: an audit that finds something looks twenty times at all buyers.
	repairLimit = 5 * time.Minute
)

// restorePostgres has Postgres come back from a power cut with the data of a moment before, as from a backup. What it
// had since is only in Redis then, and nothing but an audit finds that out: an operator repairs every sale.
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
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), repairLimit)
			defer cancel()
			return 0, r.repair(ctx)
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
		buyers.Sleep(ctx, repairEvery)
	}
}

// repair does for every sale what `sluice audit --repair --apply` does for one.
func (r *run) repair(ctx context.Context) error {
	quiet := slog.New(slog.DiscardHandler)
	repairer := recovery.NewRepairer(r.store, audit.NewAuditor(r.system.rdb, pipeline.DefaultKeys, r.store),
		recovery.NewVerifier(recovery.VerifierConfig{
			Redis: r.system.rdb, Keys: pipeline.DefaultKeys, Store: r.store, Partitions: partitions, Log: quiet,
		}), deadletter.NewBurier(r.store, nil, quiet), quiet)
	var last error // the context's own end says nothing of why
	for _, sale := range r.sales {
		for {
			report, err := repairer.Repair(ctx, sale.ID, "chaos", true)
			if err == nil {
				r.repaired.Add(report.Kept)
				if report.Applied {
					r.scheduler.say("repaired %s: %d orders brought back, then %q", sale.ID, report.Kept, report.Left.Findings)
				}
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s was not repaired in time: %w", sale.ID, errors.Join(err, last))
			}
			last = err
			buyers.Sleep(ctx, repairEvery)
		}
	}
	return nil
}
