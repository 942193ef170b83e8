package main

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed" // probe.lua
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/process"
	"sluice/lua/functions"
	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// maxSkew is how far apart clocks may be. Redis' clock decides about sale windows and Postgres' about payments; beyond
// a second buyers see a countdown that is wrong.
const maxSkew = time.Second

// probeScript tries on a key of its own what the pipeline needs; see its header.
//
//go:embed probe.lua
var probeSource string

var probeScript = redis.NewScript(probeSource)

// redis examines Redis.
func (d *doctor) redis(ctx context.Context) {
	const check = "Redis"
	rdb, err := process.OpenRedis(d.cfg)
	if err != nil {
		d.failed(check, err, "correct REDIS_URL")
		return
	}
	defer func() { _ = rdb.Close() }() // nothing is lost
	to := redisServer(d.cfg)
	if err := reach(ctx, d.cfg, to, func(ctx context.Context) error { return rdb.Ping(ctx).Err() }); err != nil {
		d.failed(check, err, "start Redis, or correct REDIS_URL")
		return
	}
	features, err := redisstore.Probe(ctx, rdb)
	if err != nil {
		d.failed(check, err, "allow the user of REDIS_URL to run INFO")
		return
	}
	d.note(true, check, "version "+features.Version+" at "+to.address, "")
	d.policy(features)
	d.durability(features)
	d.redisUsers(ctx, rdb)
	d.isolation(ctx, rdb, features)
	d.keepalive(ctx, rdb)
	d.features(ctx, rdb)
	d.trust(ctx, rdb)
	d.redisClock(ctx, rdb)
}

func (d *doctor) policy(f redisstore.Features) {
	d.note(f.Policy == "noeviction", "Redis eviction", cmp.Or(f.Policy, "unknown: INFO does not say"),
		"a Redis that may evict loses stock and buyers: set maxmemory-policy noeviction")
}

func (d *doctor) durability(f redisstore.Features) {
	found := "appendonly " + onOff(f.AppendOnly) + ", appendfsync " + cmp.Or(f.AppendFsync,
		"unknown (CONFIG is forbidden)") +
		": accepts are safe in " + durabilityText(f.Durability())
	if f.Durability() != pipeline.DurabilityFsync && f.WaitsForDisk() {
		found += ", and on disk when WAITAOF confirms it, batch by batch"
	}
	if d.cfg.Strict {
		found += "; orders are refused while DURABILITY=" + string(d.cfg.Durability) + " can't be confirmed"
	}
	err := f.Require(d.cfg.Durability)
	d.note(err == nil || f.Durability() == pipeline.DurabilityFsync, "Redis durability", found,
		"set appendonly yes and appendfsync always, or lower the promise with DURABILITY=memory")
	if d.cfg.Durability == pipeline.DurabilityReplica {
		without := "receipts say fsync, although DURABILITY=replica"
		if d.cfg.Strict {
			without = "orders are refused, because DURABILITY=replica and DURABILITY_STRICT is on"
		}
		d.note(f.Replicas > 0, "Redis replicas", strconv.Itoa(f.Replicas)+" connected",
			"connect a replica: until then "+without)
	}
}

// enoughReplicas is how many there must be for Redis to ask for one of them: with a single one, nobody could order
// while that one is restarted, or has just taken over.
const enoughReplicas = 2

// isolation checks that a primary stops to accept that was cut off from its replicas, which replace it meanwhile. What
// it accepts has no receipt of DURABILITY=replica, but it is taken back later, and buyers have been answered.
func (d *doctor) isolation(ctx context.Context, rdb redis.UniversalClient, f redisstore.Features) {
	if d.cfg.Durability != pipeline.DurabilityReplica || f.Replicas < enoughReplicas {
		return
	}
	const setting = "min-replicas-to-write"
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	got, err := rdb.ConfigGet(ctx, setting).Result()
	if err != nil {
		d.note(true, "Redis isolation", setting+" unknown (CONFIG is forbidden)", "")
		return
	}
	d.note(got[setting] != "0", "Redis isolation", setting+" "+got[setting],
		"a primary that is cut off from its replicas goes on to accept: set min-replicas-to-write 1 on every server")
}

// keepalive checks that Redis notices clients whose machine has vanished. Where CONFIG is forbidden it can't be known.
func (d *doctor) keepalive(ctx context.Context, rdb redis.UniversalClient) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	const setting = "tcp-keepalive"
	got, err := rdb.ConfigGet(ctx, setting).Result()
	seconds := got[setting]
	if err != nil || seconds == "" {
		seconds = "unknown (CONFIG is forbidden)"
	}
	d.note(seconds != "0", "Redis keepalive", setting+" "+seconds,
		"connections of machines that vanished stay open and count against maxclients: set tcp-keepalive 60")
}

func durabilityText(level pipeline.Durability) string {
	switch level {
	case pipeline.DurabilityFsync:
		return "a crash of the machine"
	case pipeline.DurabilityReplica:
		return "the loss of the machine"
	default:
		return "memory only"
	}
}

// features runs what the pipeline needs, on a key that is gone afterwards.
func (d *doctor) features(ctx context.Context, rdb redis.UniversalClient) {
	const check = "Redis features"
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if d.cfg.RedisFunctions {
		loaded, err := functions.Loaded(ctx, rdb)
		if err != nil {
			d.failed(check, err, "allow the user of REDIS_URL to list functions: sluice acl --functions")
			return
		}
		d.note(loaded, check, "functions of this build ("+functions.Name()+"), on every master: "+onOff(loaded),
			"run: sluice functions load")
		return
	}
	key := pipeline.DefaultKeys.Prefix + ":{doctor}:" + rand.Text()
	got, err := probeScript.Run(ctx, rdb, []string{key}).Text()
	switch {
	case err != nil:
		d.failed(check, err,
			"use Redis 7.0 or later (or Valkey), and allow the user of REDIS_URL to run scripts and stream commands")
	case got != "ok":
		d.note(false, check, got,
			"use Redis 7.0 or later, or Valkey: older ones can't report that another client deleted an order event")
	default:
		d.note(true, check, "scripts, streams, groups, claims", "")
	}
}

// redisClock compares clocks, taking half of the round trip off.
func (d *doctor) redisClock(ctx context.Context, rdb redis.UniversalClient) {
	d.clock("Redis clock", func() (time.Time, error) {
		ctx, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		return rdb.Time(ctx).Result()
	})
}

func (d *doctor) clock(check string, read func() (time.Time, error)) {
	sent := time.Now()
	at, err := read()
	if err != nil {
		d.failed(check, unavailable(err, "it did not return the time"), "look at the server's log")
		return
	}
	trip := time.Since(sent)
	skew := at.Sub(sent.Add(trip / 2))
	found := fmt.Sprintf("%s ahead of this machine", skew.Abs().Round(100*time.Microsecond))
	if skew < 0 {
		found = strings.Replace(found, "ahead of", "behind", 1)
	}
	d.note(skew.Abs() <= maxSkew+trip, check, found, "let both machines follow a time server (NTP)")
}

func onOff(on bool) string {
	if on {
		return "yes"
	}
	return "no"
}
