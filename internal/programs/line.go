package programs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Line is one line that a process wrote: a log record, or any other text (a crash), which has no Level.
type Line struct {
	Process string // that wrote it: api, worker-1, …
	Time    time.Time
	Level   string // DEBUG, INFO, WARN, ERROR
	Message string
	Fields  []Field // in the order in which they were written
}

// Field is an attribute of a log record.
type Field struct{ Name, Value string }

// Field returns the value of an attribute, or "".
func (l *Line) Field(name string) string {
	for _, f := range l.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Serious reports whether somebody should read this line: a warning, an error or a crash.
func (l *Line) Serious() bool { return l.Level == "WARN" || l.Level == "ERROR" || l.Level == "" }

// Text is the message and the attributes, for people.
func (l *Line) Text() string {
	var b strings.Builder
	b.WriteString(l.Message)
	for _, f := range l.Fields {
		if f.Name == "program" || f.Name == "worker" {
			continue // the process's name says it
		}
		value := f.Value
		if strings.ContainsAny(value, " \"") {
			value = fmt.Sprintf("%q", value)
		}
		fmt.Fprintf(&b, " %s=%s", f.Name, value)
	}
	return b.String()
}

// parseLine reads what slog's JSON handler writes; anything else is taken as it stands.
func parseLine(process string, raw []byte) Line {
	line := Line{Process: process, Time: time.Now()}
	fields, err := flatObject(raw)
	if err != nil {
		line.Message = string(raw)
		return line
	}
	for _, f := range fields {
		switch f.Name {
		case "time":
			if at, err := time.Parse(time.RFC3339Nano, f.Value); err == nil {
				line.Time = at
			}
		case "level":
			line.Level = f.Value
		case "msg":
			line.Message = f.Value
		default:
			line.Fields = append(line.Fields, f)
		}
	}
	return line
}

// flatObject reads a JSON object in the order in which it is written. A value that is no string stays as it is written.
func flatObject(raw []byte) ([]Field, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("not an object: %w", err)
	}
	var fields []Field
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		text := string(value)
		if value[0] == '"' {
			if err := json.Unmarshal(value, &text); err != nil {
				return nil, err
			}
		}
		fields = append(fields, Field{Name: fmt.Sprint(name), Value: text})
	}
	_, err := d.Token()
	return fields, err
}
