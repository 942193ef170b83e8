package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// readFields reads a JSON object into the fields that it may have, by name, and returns the names that were there. No body
// is an empty object. A field that is unknown, there twice or null is refused: it would mean something else than was meant.
// A field's type is that of what its value goes into: *string, *int, *int64, *bool, *time.Time (RFC 3339), *[]string, *map[string]string.
// Errors: fieldError, *problem.
func readFields(w http.ResponseWriter, r *http.Request, into map[string]any) (map[string]bool, error) {
	body, err := readObject(w, r)
	if err != nil || len(body) == 0 {
		return nil, err
	}
	members, err := membersOf(fieldBody, body)
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

func readObject(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > maxBodyBytes {
		return nil, tooLarge(w)
	}
	body, err := readBody(nil, r.Body)
	switch {
	case errors.Is(err, errBodyTooLarge):
		return nil, tooLarge(w)
	case err != nil:
		return nil, fieldError{fieldBody, "it ended before it was whole"}
	case len(body) == 0:
		return nil, nil
	case !utf8.Valid(body):
		return nil, fieldError{fieldBody, "it is not valid UTF-8"}
	}
	return body, checkMediaType(r.Header)
}

type member struct {
	name  string
	value json.RawMessage
}

// membersOf lists the members of a JSON object, each of which may be there once.
func membersOf(field string, object []byte) ([]member, error) {
	var whole json.RawMessage
	if err := json.Unmarshal(object, &whole); err != nil {
		return nil, malformed(err)
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fieldError{field, "it must be a JSON object"}
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
	members, err := membersOf(m.name, m.value)
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
