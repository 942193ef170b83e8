package httpapi

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"sluice/pipeline"
)

var plainInteger = regexp.MustCompile(`^[1-9][0-9]{0,3}$`)

// modelQuantity is what decodeQuantity must do, said with encoding/json alone. It does not see repeated fields.
func modelQuantity(body []byte) (int, bool) {
	var fields map[string]json.RawMessage
	if !utf8.Valid(body) || json.Unmarshal(body, &fields) != nil || fields == nil {
		return 0, false
	}
	value, given := fields["quantity"]
	if !given {
		return 1, len(fields) == 0
	}
	n, err := strconv.Atoi(string(value))
	return n, len(fields) == 1 && err == nil && plainInteger.Match(value) && n <= pipeline.MaxQuantityLimit
}

func FuzzDecodeQuantity(f *testing.F) {
	for _, seed := range []string{
		`{"quantity":1}`, `{}`, ` { "quantity" : 1000 } `, `{"quantity":1001}`, `{"quantity":0}`, `{"quantity":01}`,
		`{"quantity":1.0}`,
		`{"quantity":1e3}`, `{"\u0071uantity":7}`, `{"quantity":1,"quantity":2}`, `{"quantity":{"quantity":1}}`,
		`{"quantity":[1]}`,
		`{"Quantity":1}`, `{"quantity":"1"}`, `null`, `[]`, ``, `{"quantity":1}x`, "{\"quantity\":1}\x00",
		`{"quantity":-1}`, `{"":1}`,
		"{\"quantity\u00a0\":1}", "\ufeff{}", `{"quantity":12345678901234567890}`, `{"quantity":null}`, `{"quantity":1`,
		`{"quantity":1,}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decodeQuantity(body)
		want, ok := modelQuantity(body)
		if err == nil {
			if !ok || got != want {
				t.Fatalf("%q: got %d, the model says %d %t", body, got, want, ok)
			}
			return
		}
		field, isField := errors.AsType[fieldError](err)
		if !isField || field.Detail == "" || len(field.Field) > 40 || !utf8.ValidString(field.Field) {
			t.Fatalf("%q: got error %#v, want a short field error", body, err)
		}
		if ok && !(strings.Contains(field.Detail, "twice") && strings.Count(string(body), ":") > 1) {
			t.Fatalf("%q: got %v, the model takes it as %d", body, err, want)
		}
	})
}

// TestDecodeQuantityNamesTheFault: the texts that clients get.
func TestDecodeQuantityNamesTheFault(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"quantity":"1"}`:            "quantity: it must be an integer, not a string",
		`{"quantity":null}`:           "quantity: it must be an integer, not null",
		`{"quantity":true}`:           "quantity: it must be an integer, not a boolean",
		`{"quantity":[1]}`:            "quantity: it must be an integer, not an array",
		`{"quantity":{}}`:             "quantity: it must be an integer, not an object",
		`{"quantity":1.5}`:            "quantity: it must be an integer, written without fraction or exponent",
		`{"quantity":0}`:              "quantity: it must be from 1 to 1000",
		`{"quantity":99999999999}`:    "quantity: it must be from 1 to 1000",
		`{"quantity":1,"quantity":1}`: "quantity: it is there twice",
		`{"count":1}`:                 "count: this field is not known; the only one is quantity",
		`{"a\u0000\nb":1}`:            "a??b: this field is not known; the only one is quantity",
		`{"` + strings.Repeat("ü", 50) + `":1}`: strings.Repeat("ü",
			16) + "…: this field is not known; the only one is quantity",
		`[1]`:              `body: it is not a JSON object; send {"quantity":1}`,
		`{"quantity":1} {`: "body: it is not valid JSON (at byte 16)",
		"{\"\xff\":1}":     "body: it is not valid UTF-8",
	} {
		if _, err := decodeQuantity([]byte(body)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}

// BenchmarkDecodeQuantity compares the two ways through the decoder: by hand, and explained.
func BenchmarkDecodeQuantity(b *testing.B) {
	for name, body := range map[string]string{"plain": `{"quantity":1}`, "unusual": `{"\u0071uantity":1}`} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeQuantity([]byte(body)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
