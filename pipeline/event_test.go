package pipeline_test

import (
	"maps"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/pipeline"
)

// eventFields are those of a good event.
func eventFields() map[string]any {
	return map[string]any{
		"v": "1", "s": "drop-1", "k": "7", "o": "01a1fd76-3e76-7c25-9557-f22d1e0a60cd", "n": "120379976114373232",
		"u": "ann", "q": "2", "t": "1795253747320", "tp": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
}

func TestAGoodEventIsReadWhole(t *testing.T) {
	t.Parallel()
	want := pipeline.Event{
		Partition: 3, EntryID: "1795253747320-4", SaleID: "drop-1", Sequence: 7,
		OrderID: "01a1fd76-3e76-7c25-9557-f22d1e0a60cd",
		Number:  120379976114373232, UserID: "ann", Quantity: 2, AcceptedAt: time.UnixMilli(1795253747320).UTC(),
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
	fields := eventFields()
	if got, err := pipeline.DecodeEvent(3, "1795253747320-4", fields); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	delete(fields, "tp")
	fields["later"] = "a field of a later build"
	fields["w"] = "9"
	want.TraceParent, want.Ticket = "", 9
	if got, err := pipeline.DecodeEvent(3, "1795253747320-4", fields); err != nil || got != want {
		t.Errorf("without a trace: got %+v, %v, want %+v", got, err, want)
	}
}

func TestTheLimitsOfEvents(t *testing.T) {
	t.Parallel()
	for _, extreme := range []map[string]any{
		{"k": "1", "n": "1", "q": "1", "t": "1", "u": "-", "s": "0"},
		{
			"k": strconv.Itoa(1 << 40), "n": strconv.Itoa(math.MaxInt64), "q": "1000", "t": strconv.Itoa(1 << 48),
			"u": strings.Repeat("u", 128), "s": strings.Repeat("s", 64),
		},
	} {
		fields := eventFields()
		maps.Copy(fields, extreme)
		if _, err := pipeline.DecodeEvent(0, "1-1", fields); err != nil {
			t.Errorf("%v: %v", extreme, err)
		}
	}
}

func TestEventsThatAdmissionNeverWrote(t *testing.T) {
	t.Parallel()
	bad := map[string][]any{
		"v": {"", "0", "2", "-1", "1.0", "one", "99999999999999999999", 1, nil},
		"s": {"", "Drop", "drop 1", "-drop", strings.Repeat("s", 65), "a\x00", "{p01}", 1, nil},
		"k": {"", "0", "-1", "1e3", "9007199254740993", "x", 7, nil},
		"o": {
			"", "x", "01a1fd76-3e76-7c25-9557-f22d1e0a60c", "01A1FD76-3E76-7C25-9557-F22D1E0A60CD",
			"01a1fd763e767c259557f22d1e0a60cd",
			"{01a1fd76-3e76-7c25-9557-f22d1e0a60cd}", "urn:uuid:01a1fd76-3e76-7c25-9557-f22d1e0a60cd", 1, nil,
		},
		"n": {"", "0", "-1", "9223372036854775808", "1.5", nil},
		"u": {"", "a b", "{u}", "a\x00", "\xff", strings.Repeat("u", 129), nil},
		"q": {"", "0", "-1", "1001", "1.5", "2147483648", "x", nil},
		"t": {"", "0", "-1", "281474976710657", "now", nil},
	}
	for name, values := range bad {
		for _, value := range append(values, missing) {
			fields := eventFields()
			if fields[name] = value; value == missing {
				delete(fields, name)
			}
			got, err := pipeline.DecodeEvent(0, "1-1", fields)
			switch {
			case err == nil:
				t.Errorf("field %s = %.40v: no error", name, value)
			case !strings.HasPrefix(err.Error(), "field "+name):
				t.Errorf("field %s = %.40v: the error is about something else: %v", name, value, err)
			case got != pipeline.Event{}:
				t.Errorf("field %s = %.40v: got %+v beside the error", name, value, got)
			}
		}
	}
	if _, err := pipeline.DecodeEvent(0, "1-1", nil); err == nil || !strings.HasPrefix(err.Error(), "field v") {
		t.Errorf("an entry without fields: got %v, want the first field named", err)
	}
}

// missing stands for a field that is not there.
var missing any = "\x00missing"

func TestAnErrorAboutAnEventIsShort(t *testing.T) {
	t.Parallel()
	for name := range eventFields() {
		fields := eventFields()
		fields[name] = strings.Repeat("\x00é", 1<<20)
		if _, err := pipeline.DecodeEvent(0, "1-1", fields); err != nil && len(err.Error()) > 500 {
			t.Errorf("field %s: the error has %d bytes", name, len(err.Error()))
		}
	}
}

// FuzzDecodeEvent decodes arbitrary entries of the stream. A decoded event keeps every rule that the later stages rely
// on.
func FuzzDecodeEvent(f *testing.F) {
	const id, trace = "01a1fd76-3e76-7c25-9557-f22d1e0a60cd", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	f.Add("1", "drop-1", "7", id, "120379976114373232", "ann", "2", "1795253747320", trace)
	f.Add("1", "", "", "", "", "", "", "", "")
	f.Add("1", "drop-1", "007", id, "+1", "é", "+1", "1795253747320", "")
	f.Fuzz(func(t *testing.T, v, s, k, o, n, u, q, at, tp string) {
		fields := map[string]any{"v": v, "s": s, "k": k, "o": o, "n": n, "u": u, "q": q, "t": at, "tp": tp}
		e, err := pipeline.DecodeEvent(5, "1-1", fields)
		if err != nil {
			if e != (pipeline.Event{}) {
				t.Errorf("got %+v beside the error %v", e, err)
			}
			return
		}
		switch {
		case !pipeline.ValidSaleID(e.SaleID), pipeline.ValidateUserID(e.UserID) != nil, len(e.OrderID) != 36,
			e.Quantity < 1, e.Quantity > pipeline.MaxQuantityLimit, e.Number < 1, e.Sequence < 1, e.AcceptedAt.UnixMilli() < 1:
			t.Errorf("got %+v", e)
		case e.SaleID != s, e.UserID != u, e.OrderID != o, e.TraceParent != tp, e.Partition != 5, e.EntryID != "1-1":
			t.Errorf("got %+v from %v", e, fields)
		}
	})
}
