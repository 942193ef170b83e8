package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"sluice/pipeline"
)

const (
	fieldBody     = "body"
	fieldQuantity = "quantity"
)

// decodeQuantity reads {"quantity":N}. It takes exactly that and {} (one unit): a field that is misspelt or sent twice
// would otherwise order something that the buyer did not mean. Errors are FieldErrors.
func decodeQuantity(body []byte) (int, error) {
	if n, ok := plainQuantity(body); ok {
		return n, nil
	}
	return explainQuantity(body)
}

// plainQuantity reads the body that every client sends, in one pass and without allocating. ok is false for anything
// else, valid or not.
func plainQuantity(body []byte) (n int, ok bool) {
	rest := body
	for _, token := range [...]string{"{", `"quantity"`, ":"} {
		if rest, ok = bytes.CutPrefix(trimSpace(rest), []byte(token)); !ok {
			return 0, false
		}
	}
	rest = trimSpace(rest)
	n, rest = leadingInteger(rest)
	rest, ok = bytes.CutPrefix(trimSpace(rest), []byte("}"))
	return n, ok && n >= 1 && n <= pipeline.MaxQuantityLimit && len(trimSpace(rest)) == 0
}

// leadingInteger reads digits without a leading zero, as many as the largest quantity can have. It returns 0 when there
// are none.
func leadingInteger(b []byte) (n int, rest []byte) {
	const mostDigits = 4
	i := 0
	for i < len(b) && i < mostDigits && b[i] >= '0' && b[i] <= '9' {
		if n == 0 && i > 0 {
			return 0, b
		}
		n = n*10 + int(b[i]-'0')
		i++
	}
	return n, b[i:]
}

// trimSpace cuts the white space that JSON knows, which is less than Unicode's.
func trimSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\n' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

// explainQuantity decodes what plainQuantity did not take, slower, to accept the rest of what is valid and to say what
// is wrong with everything else.
func explainQuantity(body []byte) (int, error) {
	if !utf8.Valid(body) {
		return 0, fieldError{fieldBody, "it is not valid UTF-8"}
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		return 0, malformed(err)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return 0, fieldError{fieldBody, `it is not a JSON object; send {"quantity":1}`}
	}
	quantity, seen := 1, false
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return 0, malformed(err)
		}
		switch {
		case name != fieldQuantity:
			return 0, fieldError{clipName(fmt.Sprint(name)), "this field is not known; the only one is quantity"}
		case seen:
			return 0, fieldError{fieldQuantity, "it is there twice"}
		}
		seen = true
		if quantity, err = nextQuantity(dec); err != nil {
			return 0, err
		}
	}
	return quantity, nil
}

// nextQuantity takes an integer as people write one. 1.0 and 1e3 are refused with it: clients that send them compute
// with floats, and the next one would be 0.30000000000000004.
func nextQuantity(dec *json.Decoder) (int, error) {
	t, err := dec.Token()
	if err != nil {
		return 0, malformed(err)
	}
	number, ok := t.(json.Number)
	switch {
	case !ok:
		return 0, fieldError{fieldQuantity, "it must be an integer, not " + kindOf(t)}
	case strings.ContainsAny(number.String(), ".eE"):
		return 0, fieldError{fieldQuantity, "it must be an integer, written without fraction or exponent"}
	}
	n, err := number.Int64()
	if err != nil || n < 1 || n > pipeline.MaxQuantityLimit {
		return 0, fieldError{fieldQuantity, fmt.Sprintf("it must be from 1 to %d", pipeline.MaxQuantityLimit)}
	}
	return int(n), nil
}

func kindOf(t json.Token) string {
	switch t.(type) {
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case nil:
		return "null"
	case json.Delim:
		if t == json.Delim('[') {
			return "an array"
		}
		return "an object"
	default:
		return "something else"
	}
}

func malformed(err error) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fieldError{fieldBody, fmt.Sprintf("it is not valid JSON (at byte %d)", e.Offset)}
	}
	return fieldError{fieldBody, "it is not valid JSON"}
}

// clipName keeps an unknown field's name short and printable: it comes back in the answer.
func clipName(name string) string {
	const most = 32
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, name)
}

// fieldErrors collects the FieldErrors among errs. A *problem among them wins over all: it is about the whole request.
func fieldErrors(errs ...error) []fieldError {
	var wrong []fieldError
	for _, err := range errs {
		if p, ok := errors.AsType[*problem](err); ok && p != nil {
			return nil
		}
		if field, ok := errors.AsType[fieldError](err); ok {
			wrong = append(wrong, field)
		}
	}
	return wrong
}
