package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
)

// readFields reads a JSON object into the fields that it may have, by name, and returns the names that were there. No
// body is an empty object. A field that is unknown, there twice or null is refused: it would mean something other than
// intended. A field's type is that of what its value goes into: *string, *int, *int64, *bool, *time.Time (RFC 3339),
// *[]string, *map[string]string. Errors: fieldError, *problem.
func readFields(c echo.Context, into map[string]any) (map[string]bool, error) {
	return readFieldsWithin(c, maxBodyBytes, into)
}

// readFieldsWithin is readFields with another limit of the body, in bytes.
func readFieldsWithin(c echo.Context, limit int64, into map[string]any) (map[string]bool, error) {
	body, err := readJSON(c, limit)
	if err != nil || len(body) == 0 {
		return nil, err
	}
	members, err := membersOf(body, notObject(fieldBody))
	if err != nil {
		return nil, err
	}
	given := map[string]bool{}
	for _, m := range members {
		target, known := into[m.name]
		if !known {
			return nil, fieldError{clipName(m.name), "this field is not known; " + knownFields(into)}
		}
		if err := readField(m, target); err != nil {
			return nil, err
		}
		given[m.name] = true
	}
	return given, nil
}

func knownFields(into map[string]any) string {
	if len(into) == 0 {
		return "there are none"
	}
	return "use " + strings.Join(slices.Sorted(maps.Keys(into)), ", ")
}

type member struct {
	name  string
	value json.RawMessage
}

// notObject is the error about a field that must be an object.
func notObject(field string) fieldError { return fieldError{field, "it must be a JSON object"} }

// membersOf lists the members of a JSON object, each of which may be there once. encoding/json alone would take the
// last of two, and a name in other letters (Quantity) for the same. What is no object gets the error given.
func membersOf(object []byte, other fieldError) ([]member, error) {
	if !utf8.Valid(object) {
		return nil, fieldError{fieldBody, "it is not valid UTF-8"}
	}
	var whole json.RawMessage
	if err := json.Unmarshal(object, &whole); err != nil {
		return nil, malformed(err)
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, other
	}
	var members []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, malformed(err)
		}
		m := member{name: fmt.Sprint(name)}
		if slices.ContainsFunc(members, func(other member) bool { return other.name == m.name }) {
			return nil, fieldError{clipName(m.name), "it is there twice"}
		}
		if err := dec.Decode(&m.value); err != nil {
			return nil, malformed(err)
		}
		members = append(members, m)
	}
	return members, nil
}

func readField(m member, target any) error {
	if string(m.value) == "null" {
		return fieldError{m.name, "it must not be null; leave it out"}
	}
	switch into := target.(type) {
	case *map[string]string:
		return readTexts(m, into)
	case *time.Time:
		return readTime(m, into)
	}
	if json.Unmarshal(m.value, target) == nil {
		return nil
	}
	switch target.(type) {
	case *string:
		return fieldError{m.name, "it must be a string"}
	case *bool:
		return fieldError{m.name, "it must be true or false"}
	case *[]string:
		return fieldError{m.name, "it must be a list of strings"}
	}
	return fieldError{m.name, "it must be an integer, written without fraction or exponent"}
}

func readTexts(m member, into *map[string]string) error {
	members, err := membersOf(m.value, notObject(m.name))
	if err != nil {
		return err
	}
	*into = make(map[string]string, len(members))
	for _, one := range members {
		var text string
		if string(one.value) == "null" || json.Unmarshal(one.value, &text) != nil {
			return fieldError{m.name + "." + clipName(one.name), "it must be a string"}
		}
		(*into)[one.name] = text
	}
	return nil
}

func readTime(m member, into *time.Time) error {
	var text string
	at, err := time.Time{}, json.Unmarshal(m.value, &text)
	if err == nil {
		at, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return fieldError{m.name, "it must be a time of the form 2026-11-27T10:00:00Z (RFC 3339)"}
	}
	*into = at
	return nil
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
