package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/operator"
	"sluice/pipeline/pipelinetest"
)

// bury makes a dead letter of foreign fields, and returns its page.
func (r *rig) bury(payload map[string]any, why string) string {
	r.Helper()
	sale, _ := payload["s"].(string)
	before, err := r.Store.Letters(r.Ctx(), deadletter.Filter{All: true})
	must(r, err)
	must(r, r.Store.BuryEvent(r.Ctx(), deadletter.Message{
		EntryID: fmt.Sprintf("1-%d", len(before)+1), SaleID: sale, Payload: payload, Reason: deadletter.Undecodable, Error: why,
	}, nil))
	after, err := r.Store.Letters(r.Ctx(), deadletter.Filter{All: true})
	must(r, err)
	return fmt.Sprintf("/console/dead-letters/%d", after[len(after)-1].ID)
}

// TestLettersAreDecided: a letter is shown with its payload and why, and replayed or discarded once.
func TestLettersAreDecided(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 10}})
	b := r.as("ann", operator.Operate)
	broken := map[string]any{"s": "drop-1", "u": "buyer-1", "q": "x", "v": "1"}
	replayed, discarded := r.bury(broken, "field q: it is no number"), r.bury(broken, "field q: it is no number")
	b.want(http.StatusOK, b.get("/console/dead-letters"), "2", "undecodable 2", "field q")
	b.want(http.StatusOK, b.get("/console/dead-letters?reason=refused"), "None waits")
	b.want(http.StatusOK, b.get(replayed), "field q: it is no number", "buyer-1", "Replay")

	form := b.plan(replayed+"/replay?set_q=2", "repaired by hand")
	b.want(http.StatusOK, b.get(replayed+"/replay?set_q=2"), "Units x 2", "Units that are free 10")
	for range 3 {
		got := b.want(http.StatusSeeOther, b.post(replayed+"/replay", form))
		if got.location != replayed+"?done=replay" {
			t.Errorf("leads to %q", got.location)
		}
	}
	if events := r.Events(r.Sale); len(events) > 1 || r.Rows("drop-1") != 1 {
		t.Errorf("got %d events and %d rows, want one order", len(events), r.Rows("drop-1"))
	}
	b.want(http.StatusOK, b.get(replayed), "replayed", "Order of a replay")
	b.want(http.StatusOK, b.get(replayed+"/discard"), "It is replayed already")

	form = b.plan(discarded+"/discard", "the buyer was told")
	b.want(http.StatusBadRequest, b.post(discarded+"/discard", form), "what you typed is not")
	form = b.plan(discarded+"/discard", "the buyer was told")
	form.Set("typed", discarded[strings.LastIndex(discarded, "/")+1:])
	b.want(http.StatusSeeOther, b.post(discarded+"/discard", form))
	b.want(http.StatusSeeOther, b.post(discarded+"/discard", form))
	b.want(http.StatusOK, b.get(discarded), "discarded", "the buyer was told")
	b.want(http.StatusOK, b.get("/console/dead-letters"), "None waits")
	b.want(http.StatusOK, b.get("/console/dead-letters?all=1"), "undecodable 2")
	b.want(http.StatusOK, b.get("/console/log?action=discard"), "token:ann", "the buyer was told")
	b.want(http.StatusNotFound, b.get("/console/dead-letters/x"))
	b.want(http.StatusNotFound, b.get("/console/dead-letters/999999"))
}
