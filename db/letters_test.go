package db_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"sluice/pipeline"
)

// letterPayload reads a payload back as db/letters.go says it is written.
func letterPayload(f *fixture) map[string]string {
	f.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(one[string](f, `select payload::text from dead_letters`)), &fields); err != nil {
		f.Fatal(err)
	}
	decoded := map[string]string{}
	for name, raw := range fields {
		if encoded, ok := strings.CutPrefix(name, "base64:"); ok {
			plain, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				f.Fatal(err)
			}
			name = string(plain)
		}
		var text string
		var encoded struct{ Base64 []byte }
		switch {
		case json.Unmarshal(raw, &text) == nil:
			decoded[name] = text
		case json.Unmarshal(raw, &encoded) == nil:
			decoded[name] = string(encoded.Base64)
		default:
			f.Fatalf("field %q: %s", name, raw)
		}
	}
	return decoded
}

// Whatever bytes an entry holds, they come back from the letter, and the second write changes nothing.
func TestDeadLetterKeepsEveryByte(t *testing.T) {
	f := setup(t)
	var allBytes strings.Builder
	for b := range 256 {
		allBytes.WriteByte(byte(b))
	}
	payload := map[string]any{
		"plain": "text", "": "no name", "nul": "a\x00b", "bytes": allBytes.String(), "unicode": "Zoë 🔑 \u2028",
		"json": `{"base64":"AA=="}`, "n\x00ul": "1", "\xff": "2", "base64:AA==": "3", "html": "<&>", "quote": `'"\`,
	}
	letter := pipeline.DeadLetter{
		Partition: 63, EntryID: "1-1", SaleID: "drop\x00", OrderID: "x\xff", Payload: payload, Reason: "undecodable",
		Error: "field s: \x00 " + strings.Repeat("é", 4000), Deliveries: 3,
	}
	isNew, err := f.store.SaveDeadLetter(f.ctx(), letter)
	if err != nil || !isNew {
		t.Fatalf("got %v, %v, want a new letter", isNew, err)
	}
	want := map[string]string{}
	for name, value := range payload {
		want[name] = value.(string)
	}
	if got := letterPayload(f); !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	row := one[string](f, `
		select partition || ' ' || entry_id || ' ' || sale_id || ' ' || order_id || ' ' || reason || ' ' || deliveries
		from dead_letters where resolved_at is null and resolution is null and octet_length(error) between 4000 and 4200`)
	if want := "63 1-1 drop\uFFFD x\uFFFD undecodable 3"; row != want {
		t.Errorf("got %q, want %q", row, want)
	}

	before := f.state()
	if isNew, err = f.store.SaveDeadLetter(f.ctx(), letter); err != nil || isNew || f.state() != before {
		t.Errorf("again: got %v, %v, want nothing new and nothing changed", isNew, err)
	}
	letter.Payload = map[string]any{"other": "entry with the same id, after Redis lost its data"}
	if isNew, err = f.store.SaveDeadLetter(f.ctx(), letter); err != nil || !isNew {
		t.Errorf("another entry: got %v, %v, want a new letter", isNew, err)
	}
}

func TestDeadLetterLimits(t *testing.T) {
	f := setup(t)
	payload := map[string]any{"big": strings.Repeat("x", 1<<20)}
	letter := pipeline.DeadLetter{EntryID: "1-1", Reason: "undecodable", Payload: payload}
	if _, err := f.store.SaveDeadLetter(f.ctx(), letter); err != nil {
		t.Fatal(err)
	}
	if got := one[int64](f, `select (payload #>> '{big,bytes}')::bigint from dead_letters`); got != 1<<20 {
		t.Errorf("length noted: got %d, want %d", got, 1<<20)
	}
	if got := len(letterPayload(f)["big"]); got != 64<<10 {
		t.Errorf("bytes kept: got %d, want %d", got, 64<<10)
	}
	letter.Reason = ""
	_, err := f.store.SaveDeadLetter(f.ctx(), letter)
	wantKind(t, err, pipeline.KindData)
}
