package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sluice/internal/acl"
	"sluice/internal/config"
	"sluice/lua/functions"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

// provideEvery is how soon a server that has no users has them.
const provideEvery = 50 * time.Millisecond

// userOf is a program's user of Redis, and its password.
func userOf(program config.Program) string { return "chaos-" + string(program) }

// provide gives the server that is in use now the users of the programs, and the functions.
func (s *system) provide(ctx context.Context) error {
	if err := functions.Load(ctx, s.rdb); err != nil {
		return fmt.Errorf("load the functions: %w", err)
	}
	features, err := redisstore.Probe(ctx, s.rdb)
	if err != nil {
		return err
	}
	for _, role := range []acl.Role{acl.API, acl.Worker} {
		user := userOf(config.Program(role))
		var command []any
		for _, word := range strings.Fields(acl.Line(role, user, true, features.WaitAOF) + " >" + user) {
			command = append(command, word)
		}
		if err := s.rdb.Do(ctx, command...).Err(); err != nil {
			return fmt.Errorf("give %s its rights: %w", user, err)
		}
	}
	return nil
}

// keepProvided does so for every server that takes the place of another. Faults keep it from that for a while.
func (s *system) keepProvided(ctx context.Context) {
	for ; ctx.Err() == nil; retry.Sleep(ctx, provideEvery) {
		known, err := s.rdb.Do(ctx, "acl", "getuser", userOf(config.Worker)).Result()
		if err == nil && known != nil {
			continue
		}
		_ = s.provide(ctx) // the next turn tries again
	}
}
