package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sluice/internal/buyers"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/recovery"
)

// repairEvery is the time between two attempts at a repair: a verification may be under way, or a store away.
const repairEvery = 200 * time.Millisecond

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
			return 0, r.repair(ctx)
		},
	}
}

// repair does for every sale what `sluice audit --repair --apply` does for one.
func (r *run) repair(ctx context.Context) error {
	quiet := slog.New(slog.DiscardHandler)
	repairer := recovery.NewRepairer(r.store, audit.NewAuditor(r.system.rdb, pipeline.DefaultKeys, r.store),
		recovery.NewVerifier(recovery.VerifierConfig{
			Redis: r.system.rdb, Keys: pipeline.DefaultKeys, Store: r.store, Partitions: partitions, Log: quiet,
		}), deadletter.NewBurier(r.store, nil, quiet), quiet)
	for _, sale := range r.sales {
		for {
			report, err := repairer.Repair(ctx, sale.ID, "chaos", true)
			if err == nil {
				r.repaired.Add(report.Kept)
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s was not repaired in time: %w", sale.ID, err)
			}
			buyers.Sleep(ctx, repairEvery)
		}
	}
	return nil
}
