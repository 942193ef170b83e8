package pipelinetest

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline/deadletter"
	"sluice/pipeline/lifecycle"
)

// MustReplay replays and returns the id of the order.
func (r *Rig) MustReplay(id int64, set ...string) string {
	r.Helper()
	letter, err := r.Replay(id, set...)
	if err != nil || letter.Resolution != deadletter.Replayed || letter.ReplayID == "" {
		r.Fatalf("replay of letter %d: got %+v, %v, want it replayed", id, letter, err)
	}
	return letter.ReplayID
}

// LastLetter is the id of the newest letter.
func (r *Rig) LastLetter() int64 {
	r.Helper()
	letters, err := r.Store.Letters(r.Ctx(), deadletter.Filter{All: true})
	if err != nil || len(letters) == 0 {
		r.Fatalf("got %d letters, %v, want some", len(letters), err)
	}
	return letters[len(letters)-1].ID
}

// Work lets a worker persist what is in the streams and give back what is due, and stops it.
func (r *Rig) Work() {
	r.Helper()
	r.WorkAll().Stop()
}

// Replay replays a dead letter as the operator "test".
func (r *Rig) Replay(id int64, set ...string) (deadletter.Letter, error) {
	r.Helper()
	return r.Replayer(r.Redis, r.Store).Replay(r.Ctx(), id, "ann", Repairs(set...))
}

// Replayer is the operator's tool over the rig's stores, or over another Redis or Postgres.
func (r *Rig) Replayer(rdb redis.UniversalClient, store deadletter.ReplayStore) *deadletter.Replayer {
	r.Helper()
	return deadletter.NewReplayer(
		rdb, r.Keys, store, lifecycle.NewReleaser(rdb, r.Keys, r.Store, r.HandOvers(), r.Metrics.Lifecycle, r.Logger),
		r.Logger,
	)
}

// Repairs makes a map of field=value.
func Repairs(set ...string) map[string]string {
	fields := map[string]string{}
	for _, s := range set {
		name, value, _ := strings.Cut(s, "=")
		fields[name] = value
	}
	return fields
}
