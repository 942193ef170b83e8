package main

import (
	"context"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/internal/config"
)

// maxUsers is how many users of Redis the doctor asks about, each with a few commands; an installation has three.
const maxUsers = 20

// excess are commands that no program needs, as `ACL DRYRUN` takes them, and what a user may do who may run them.
var excess = []struct {
	may     string
	command []any
}{
	{"empty the server", []any{"FLUSHALL"}},
	{"stop it", []any{"SHUTDOWN"}},
	{"change its configuration", []any{"CONFIG", "SET", "appendonly", "no"}},
	{"change its users", []any{"ACL", "SETUSER", "x"}},
	{"list its keys", []any{"KEYS", "*"}},
	{"use keys that are not of this installation", []any{"GET", "another:key"}},
	{"cut off streams", []any{"XTRIM", "sluice:{p00}:orders", "MAXLEN", "0"}},
}

// ownScripts is one of them where functions are in use.
var ownScripts = []any{"EVAL", "return 1", "0"}

// redisUsers notes what this connection's user of Redis, and those that are connected now, could do beyond what they
// need. It is no fault: development needs no users.
func (d *doctor) redisUsers(ctx context.Context, rdb redis.UniversalClient) {
	const check = "Redis users"
	opts, err := config.RedisOptions(d.cfg.RedisURL)
	if err != nil {
		d.failed(check, err, "correct REDIS_URL")
		return
	}
	own := opts.Username
	if own == "" {
		own = "default"
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var exact, tooMuch []string
	for _, user := range connectedUsers(ctx, rdb, own) {
		switch more, err := d.excessOf(ctx, rdb, user); {
		case err != nil:
			d.note(true, check, user+"; sluice acl prints what it needs; what more it may do is not known: "+sentence(err), "")
			return
		case len(more) == 0:
			exact = append(exact, user)
		default:
			tooMuch = append(tooMuch, user+" may "+strings.Join(more, ", "))
		}
	}
	d.rights(check, exact, tooMuch, "which may do nothing beyond the pipeline's work",
		"sluice acl prints what the programs need")
}

// excessOf lists what a user may do that no program needs.
func (d *doctor) excessOf(ctx context.Context, rdb redis.UniversalClient, user string) (more []string, err error) {
	may := func(command []any) (bool, error) {
		answer, err := rdb.ACLDryRun(ctx, user, command...).Result()
		return answer == "OK", err
	}
	for _, e := range excess {
		ok, err := may(e.command)
		if err != nil {
			return nil, err
		}
		if ok {
			more = append(more, e.may)
		}
	}
	if !d.cfg.RedisFunctions {
		return more, nil
	}
	ok, err := may(ownScripts)
	if ok {
		more = append(more, "send scripts of its own")
	}
	return more, err
}

// connectedUsers are our own user and those who are connected, but for replicas. Where CLIENT LIST is forbidden, it is
// our own alone.
func connectedUsers(ctx context.Context, rdb redis.UniversalClient, own string) []string {
	users := []string{own}
	clients, err := rdb.ClientList(ctx).Result()
	if err != nil {
		return users
	}
	for line := range strings.Lines(clients) {
		var user, flags string
		for _, field := range strings.Fields(line) {
			if value, ok := strings.CutPrefix(field, "user="); ok {
				user = value
			} else if value, ok := strings.CutPrefix(field, "flags="); ok {
				flags = value
			}
		}
		replication := strings.ContainsAny(flags, "SM")
		if user == "" || user == "(superuser)" || replication || slices.Contains(users, user) || len(users) == maxUsers {
			continue
		}
		users = append(users, user)
	}
	slices.Sort(users[1:])
	return users
}
