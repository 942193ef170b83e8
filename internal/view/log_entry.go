package view

import (
	"encoding/json"
	"strconv"

	"sluice/pipeline/auditlog"
)

// LogEntry is a line of the audit log.
type LogEntry struct {
	ID     string          `json:"id"`
	At     string          `json:"at"`
	Actor  string          `json:"actor"`
	Action string          `json:"action"`
	SaleID *string         `json:"sale_id"` // null where it concerns no sale
	Before json.RawMessage `json:"before"`  // what it was; null where the line has none
	After  json.RawMessage `json:"after"`   // what it became; null where the line has none
	Detail json.RawMessage `json:"detail"`  // the rest: what it was done to, and why
}

// NewLogEntry views a line.
func NewLogEntry(e *auditlog.Entry) LogEntry {
	before, after, rest := e.Change()
	return LogEntry{
		ID: strconv.FormatInt(e.ID, 10), At: Time(e.At), Actor: e.Actor, Action: e.Action, SaleID: textOrNil(e.SaleID),
		Before: before, After: after, Detail: rest,
	}
}

// NewLog views a list.
func NewLog(list []auditlog.Entry) []LogEntry { return views(list, NewLogEntry) }
