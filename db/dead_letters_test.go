package db_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
)

// letterPayload reads a payload back that letterFields wrote.
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

// bury writes a letter of an entry that could not be read.
func (f *fixture) bury(letter deadletter.Message) {
	f.Helper()
	if err := f.store.BuryEvent(f.ctx(), letter, nil); err != nil {
		f.Fatal(err)
	}
}

// letter buries a small letter and returns its id.
func (f *fixture) letter(entry int, saleID, reason string) int64 {
	f.Helper()
	f.bury(deadletter.Message{
		EntryID: fmt.Sprintf("1700000000000-%d", entry), SaleID: saleID, OrderID: uuid.NewString(), Reason: reason,
		Payload: map[string]any{"s": saleID, "q": "1"}, Error: "why", Deliveries: 2,
	})
	return one[int64](f, `select max(id) from dead_letters`)
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
	letter := deadletter.Message{
		Partition: 63, EntryID: "1-1", SaleID: "drop\x00", OrderID: "x\xff", Payload: payload, Reason: "undecodable",
		Error: "field s: \x00 " + strings.Repeat("é", 4000), Deliveries: 3,
	}
	f.bury(letter)
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
	if f.bury(letter); f.state() != before {
		t.Error("again: something changed")
	}
	letter.Payload = map[string]any{"other": "entry with the same id, after Redis lost its data"}
	f.bury(letter)
	if got := one[int64](f, `select count(*) from dead_letters`); got != 2 {
		t.Errorf("another entry: got %d letters, want 2", got)
	}
}

func TestDeadLetterLimits(t *testing.T) {
	f := setup(t)
	payload := map[string]any{"big": strings.Repeat("x", 1<<20)}
	letter := deadletter.Message{EntryID: "1-1", Reason: "undecodable", Payload: payload}
	f.bury(letter)
	if got := one[int64](f, `select (payload #>> '{big,bytes}')::bigint from dead_letters`); got != 1<<20 {
		t.Errorf("length noted: got %d, want %d", got, 1<<20)
	}
	if got := len(letterPayload(f)["big"]); got != 64<<10 {
		t.Errorf("bytes kept: got %d, want %d", got, 64<<10)
	}
	letter.Reason = ""
	wantKind(t, f.store.BuryEvent(f.ctx(), letter, nil), pipeline.KindData)
}

// Lists show what waits, the oldest first, in pages, and filtered; a resolved letter only when all are asked for.
func TestLettersAreListed(t *testing.T) {
	f := setup(t)
	var ids []int64
	for i, of := range []struct{ sale, reason string }{
		{"drop-1", "undecodable"}, {"drop-2", "refused"}, {"drop-1", "refused"}, {"", "undecodable"}, {"drop-1", "refused"},
	} {
		ids = append(ids, f.letter(i, of.sale, of.reason))
	}
	discard := deadletter.LetterResolution{Resolution: deadletter.Discarded, Actor: "test"}
	if _, err := f.store.ResolveLetter(f.ctx(), ids[2], discard); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		filter deadletter.Filter
		want   []int64
	}{
		"unresolved": {deadletter.Filter{}, []int64{ids[0], ids[1], ids[3], ids[4]}},
		"all":        {deadletter.Filter{All: true}, ids},
		"a page":     {deadletter.Filter{After: ids[0], Limit: 2}, []int64{ids[1], ids[3]}},
		"of a sale":  {deadletter.Filter{SaleID: "drop-1"}, []int64{ids[0], ids[4]}},
		"by reason":  {deadletter.Filter{Reason: "refused", All: true}, []int64{ids[1], ids[2], ids[4]}},
		"both":       {deadletter.Filter{SaleID: "drop-1", Reason: "undecodable"}, ids[:1]},
		"of no one":  {deadletter.Filter{SaleID: "no\x00body\xff"}, nil},
	} {
		letters, err := f.store.Letters(f.ctx(), test.filter)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []int64
		for _, l := range letters {
			got = append(got, l.ID)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestLetterIsShownWhole(t *testing.T) {
	f := setup(t)
	letter := deadletter.Message{
		Partition: 3, EntryID: "1-1", SaleID: "drop-1", OrderID: "x", Reason: "undecodable", Error: "field k", Deliveries: 7,
		Payload: map[string]any{"s": "drop-1", "k": "\xff"},
	}
	f.bury(letter)
	got, err := f.store.Letter(f.ctx(), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := deadletter.Letter{ID: 1, CreatedAt: got.CreatedAt, Message: letter}
	want.Payload = map[string]any{"s": "drop-1", "k": map[string]any{"base64": "/w=="}}
	if !reflect.DeepEqual(got, want) || got.CreatedAt.IsZero() {
		t.Errorf("got %+v, want %+v", got, want)
	}
	_, err = f.store.Letter(f.ctx(), 2)
	wantKind(t, err, pipeline.KindNotFound)
}

// What is stored before a replay's call is kept by every other try; once it is known that there is no order, the next
// may ask for something else, under the same order id.
func TestReplayIsBegunOnce(t *testing.T) {
	f := setup(t)
	id := f.letter(1, "drop-1", "refused")
	begin := func(orderID string, quantity int) (string, int) {
		t.Helper()
		stored, as, err := f.store.BeginReplay(f.ctx(), id, orderID,
			deadletter.ReplayAs{SaleID: "drop-1", UserID: "ann", Quantity: quantity})
		if err != nil {
			t.Fatal(err)
		}
		return stored, as.Quantity
	}
	tries := []string{uuid.NewString(), uuid.NewString(), uuid.NewString()}
	first := tries[0]
	for try, quantity := range []int{1, 1, 2} {
		if orderID, q := begin(tries[try], quantity); orderID != first || q != 1 {
			t.Errorf("try %d: got %s of %d, want %s of 1", try, orderID, q, first)
		}
	}
	discard := deadletter.LetterResolution{Resolution: deadletter.Discarded, Actor: "test"}
	_, err := f.store.ResolveLetter(f.ctx(), id, discard)
	wantKind(t, err, pipeline.KindConflict) // the order may stand
	if err := f.store.EndReplay(f.ctx(), id); err != nil {
		t.Fatal(err)
	}
	if orderID, q := begin(uuid.NewString(), 2); orderID != first || q != 2 {
		t.Errorf("after a refusal: got %s of %d, want %s of 2", orderID, q, first)
	}
}

// A resolution is final and has its line in the audit log; neither is there without the other.
func TestResolveOnce(t *testing.T) {
	f := setup(t)
	replayed, discarded, bad := f.letter(1, "drop-1", "refused"), f.letter(2, "", "undecodable"), f.letter(3, "",
		"undecodable")
	orderID := uuid.NewString()
	resolve := func(id int64, how deadletter.LetterResolution) error {
		_, err := f.store.ResolveLetter(f.ctx(), id, how)
		return err
	}
	replay := deadletter.LetterResolution{
		Resolution: deadletter.Replayed, Actor: "ann", SaleID: "drop-1", OrderID: orderID,
		Repairs: map[string]string{"q": "1"},
	}
	discard := deadletter.LetterResolution{Resolution: deadletter.Discarded, Actor: "bob", Note: "not <ours>"}
	if err := resolve(replayed, replay); err != nil {
		t.Fatal(err)
	}
	if err := resolve(discarded, discard); err != nil {
		t.Fatal(err)
	}
	before := f.state()
	for _, id := range []int64{replayed, discarded} {
		wantKind(t, resolve(id, replay), pipeline.KindConflict)
		wantKind(t, resolve(id, discard), pipeline.KindConflict)
	}
	wantKind(t, resolve(99, discard), pipeline.KindNotFound)
	discard.Actor = strings.Repeat("x", 129)
	wantKind(t, resolve(bad, discard), pipeline.KindData)
	if f.state() != before {
		t.Error("a refused resolution changed something")
	}
	got := one[string](f, `
		select string_agg(actor || ' ' || action || ' ' || coalesce(sale_id, 'null') || ' ' || detail, E'\n' order by id)
		from audit_log`)
	want := fmt.Sprintf(`ann replay drop-1 {"set": {"q": "1"}, "after": {"resolution": "replayed"}, `+
		`"before": {"resolution": null}, "order_id": "%s", "dead_letter": %d}
bob discard null {"note": "not <ours>", "after": {"resolution": "discarded"}, `+
		`"before": {"resolution": null}, "dead_letter": %d}`, orderID, replayed, discarded)
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	letter, err := f.store.Letter(f.ctx(), replayed)
	if err != nil || letter.Resolution != deadletter.Replayed || letter.ReplayID != orderID || letter.ResolvedAt.IsZero() {
		t.Errorf("got %+v, %v, want it replayed", letter, err)
	}
}
