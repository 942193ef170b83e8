package httpapi_test

import (
	"strings"
	"testing"

	"sluice/internal/view"
)

func giveLetters(r *adminRig) {
	r.create(newSale("drop-1", 10))
	id := r.bury("s=drop-1", "u=ann", "q=1")
	r.expect(ask("GET", "dead-letters", ""), 200, "")
	r.expect(ask("GET", "dead-letters?limit=0&all=maybe", ""), 400, "invalid-request")
	r.expect(ask("GET", "dead-letters/"+id, ""), 200, "")
	r.expect(ask("GET", "dead-letters/99", ""), 404, "unknown-dead-letter")
	r.expect(ask("GET", "dead-letters/x", ""), 404, "unknown-dead-letter")
	key := r.keys.Sale(r.stored("drop-1").Partitions[0], "drop-1")
	must(r.t, r.rdb.Rename(r.t.Context(), key, key+":away").Err())
	r.expect(post("dead-letters/"+id+"/replay", ""), 503, "sale-not-loaded")
	must(r.t, r.rdb.Rename(r.t.Context(), key+":away", key).Err())
	replay, discard := "dead-letters/"+id+"/replay", "dead-letters/"+r.bury("s=drop-1")+"/discard"
	for _, path := range []string{replay, discard} {
		r.expect(post(path, `{"bogus":1}`), 400, "invalid-request")
		r.expect(post(path, strings.Repeat(" ", 70_000)), 413, "too-large")
		r.expect(post(path, "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
		r.expect(post(path, ""), 200, "")
		r.expect(post(path, ""), 409, "conflict")
	}
	r.expect(post("dead-letters/99/replay", ""), 404, "unknown-dead-letter")
	r.expect(post("dead-letters/99/discard", ""), 404, "unknown-dead-letter")
}

type letterList struct {
	DeadLetters []view.Letter `json:"dead_letters"`
	NextAfter   *string       `json:"next_after"`
}

// TestAdminDeadLetters is the life of dead letters over HTTP.
func TestAdminDeadLetters(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	r.create(newSale("drop-1", 10))
	first, second, third := r.bury("s=drop-1", "u=ann", "q=x"), r.bury("s=drop-2", "u=\xff"), r.bury("s=drop-1", "q=1")
	ids := func(query string) string {
		t.Helper()
		list := decode[letterList](t, r.expect(ask("GET", "dead-letters"+query, ""), 200, ""))
		var all []string
		for _, l := range list.DeadLetters {
			all = append(all, l.ID)
			if l.Payload != nil {
				t.Errorf("%s: a payload is in the list", query)
			}
		}
		if list.NextAfter != nil {
			all = append(all, "next", *list.NextAfter)
		}
		return strings.Join(all, " ")
	}
	for query, want := range map[string]string{
		"": first + " " + second + " " + third, "?sale=drop-1": first + " " + third, "?reason=refused": "",
		"?limit=1": first + " next " + first, "?limit=1&after=" + first: second + " next " + second, "?after=" + third: "",
		"?sale=%00%ff": "",
	} {
		if got := ids(query); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	shown := decode[view.Letter](t, r.expect(ask("GET", "dead-letters/"+second, ""), 200, ""))
	if bytes, ok := shown.Payload["u"].(map[string]any); !ok || bytes["base64"] != "/w==" || shown.ResolvedAt != nil {
		t.Errorf("got %+v, want the bytes of u", shown)
	}

	for body, says := range map[string]string{
		"":                           `field q: "x"`,
		`{"set":{"k":"1"}}`:          "s, u, q, v",
		`{"set":{"q":1}}`:            "set.q: it must be a string",
		`{"set":{"q":null}}`:         "set.q: it must be a string",
		`{"set":{"q":"1","q":"2"}}`:  "q: it is there twice",
		`{"set":null}`:               "set: it must not be null",
		`{"set":[]}`:                 "set: it must be a JSON object",
		`{"Set":{}}`:                 "Set: this field is not known; use set",
		`{"set":{"q":"1"},"x":true}`: "x: this field is not known",
		`[]`:                         "body: it must be a JSON object",
		`{"set":{}} {}`:              "body: it is not valid JSON",
		"{\"set\":{\"u\":\"\xff\"}}": "body: it is not valid UTF-8",
	} {
		got := r.expect(post("dead-letters/"+first+"/replay", body), 400, "invalid-request")
		if !strings.Contains(got.problem().Detail, says) {
			t.Errorf("%s: got %q, want %q", body, got.problem().Detail, says)
		}
	}
	replayed := decode[view.Letter](t,
		r.expect(post("dead-letters/"+first+"/replay", `{"set":{"q":"2"}}`).with("Authorization", r.as("zoe")), 200, ""))
	if replayed.Resolution == nil || *replayed.Resolution != "replayed" || replayed.ReplayOrderID == nil {
		t.Fatalf("got %+v, want it replayed", replayed)
	}
	mine := decode[receipt](t, r.public.expect(get("/v1/sales/drop-1/orders/mine", "ann"), 200, ""))
	if mine.OrderID != *replayed.ReplayOrderID || mine.Quantity != 2 {
		t.Errorf("got %+v, want the order %s", mine, *replayed.ReplayOrderID)
	}
	discarded := decode[view.Letter](t, r.expect(post("dead-letters/"+second+"/discard", `{"note":"not ours"}`), 200, ""))
	if discarded.Resolution == nil || *discarded.Resolution != "discarded" || discarded.Note != "not ours" {
		t.Errorf("got %+v, want it discarded", discarded)
	}
	got := r.expect(post("dead-letters/"+first+"/replay", ""), 409, "conflict")
	if !strings.Contains(got.problem().Detail, "was replayed at") ||
		!strings.Contains(got.problem().Detail, mine.OrderID) {
		t.Errorf("got %q, want it to say when and how", got.problem().Detail)
	}
	if got := ids(""); got != third {
		t.Errorf("got %q waiting, want %q", got, third)
	}
	if got := ids("?all=true"); got != first+" "+second+" "+third {
		t.Errorf("got %q in all", got)
	}
	r.logged("sluice create drop-1; token:zoe replay drop-1; bootstrap discard drop-2")
}
