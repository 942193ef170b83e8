package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
)

// trust reports which partitions admit buyers: those whose state was verified under the server process that has it now.
// Where no partition was ever verified the installation is new, and nothing is wrong.
func (d *doctor) trust(ctx context.Context, rdb redis.UniversalClient) {
	const check = "Redis trust"
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	trusted, unknown := 0, 0
	var closed []string
	for p := range pipeline.Partition(d.cfg.Partitions) {
		state, known, err := trustOf(ctx, rdb, p)
		switch {
		case err != nil:
			d.failed(check, unavailable(err, "Redis did not say whether it is verified"),
				"allow the user of REDIS_URL to run scripts and INFO")
			return
		case state == lua.Trusted:
			trusted++
			continue
		case !known:
			unknown++
		}
		closed = append(closed, p.String()+" "+string(state))
	}
	if unknown == d.cfg.Partitions {
		d.note(true, check, "not verified yet; the first api or worker does it", "")
		return
	}
	found := strconv.Itoa(trusted) + " of " + strconv.Itoa(d.cfg.Partitions) + " partitions are verified"
	if len(closed) > 0 {
		found += "; no buyer can order on " + strings.Join(closed, ", ")
	}
	d.note(len(closed) == 0, check, found,
		"start an api or a worker, which verifies them within a second; where one runs and this stays, its log says why, and sluice rebuild shows what is lost")
}

// trustOf is a partition's state, and whether one was ever recorded.
func trustOf(
	ctx context.Context, rdb redis.UniversalClient, p pipeline.Partition,
) (state lua.Trust, known bool, err error) {
	key := pipeline.DefaultKeys.Trusted(p)
	verified, err := lua.ReadTrust(ctx, rdb, pipeline.DefaultKeys.ForVerify(p, ""))
	if state = verified.Trust; err != nil || state != lua.Untrusted {
		return state, true, err
	}
	value, err := rdb.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return state, false, nil
	}
	if strings.HasPrefix(value, string(lua.Verifying)+":") {
		state = lua.Verifying
	}
	return state, true, err
}
