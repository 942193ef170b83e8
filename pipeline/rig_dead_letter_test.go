package pipeline_test

import (
	"strings"

	"sluice/internal/testkit"
	"sluice/pipeline"

	"github.com/redis/go-redis/v9"
)

// mustReplay replays and returns the id of the order.
func (r *rig) mustReplay(id int64, set ...string) string {
	r.Helper()
	letter, err := r.replay(id, set...)
	if err != nil || letter.Resolution != pipeline.LetterReplayed || letter.ReplayID == "" {
		r.Fatalf("replay of letter %d: got %+v, %v, want it replayed", id, letter, err)
	}
	return letter.ReplayID
}

// lastLetter is the id of the newest letter.
func (r *rig) lastLetter() int64 {
	r.Helper()
	letters, err := r.store.Letters(r.ctx(), pipeline.LettersFilter{All: true})
	if err != nil || len(letters) == 0 {
		r.Fatalf("got %d letters, %v, want some", len(letters), err)
	}
	return letters[len(letters)-1].ID
}

// work lets a worker persist what is in the streams and give back what is due, and stops it.
func (r *rig) work() {
	r.Helper()
	worker := r.startWorker(r.store, pipeline.WorkerOptions{}, r.releaser().Job())
	r.settled()
	testkit.Eventually(r.T, settleLimit, "every release is applied", func() bool {
		due, err := r.store.UnappliedReleases(r.ctx(), pipeline.SalePartition{}, 1)
		return err == nil && len(due) == 0
	})
	worker.stop()
}

func (r *rig) replay(id int64, set ...string) (pipeline.Letter, error) {
	r.Helper()
	return r.replayer(r.rdb, r.store).Replay(r.ctx(), id, "ann", repairs(set...))
}

// replayer is the operator's tool over the rig's stores, or over another Redis or Postgres.
func (r *rig) replayer(rdb redis.UniversalClient, store pipeline.ReplayStore) *pipeline.Replayer {
	r.Helper()
	return pipeline.NewReplayer(rdb, r.keys, store, pipeline.NewReleaser(rdb, r.keys, r.store, r.handOvers(), r.metrics.Lifecycle, r.log), r.log)
}

// repairs makes a map of field=value.
func repairs(set ...string) map[string]string {
	fields := map[string]string{}
	for _, s := range set {
		name, value, _ := strings.Cut(s, "=")
		fields[name] = value
	}
	return fields
}
