package auditlog

import (
	"encoding/json"
	"time"
)

// Entry is a line of the audit log.
type Entry struct {
	ID     int64
	At     time.Time
	Actor  string          // cli:ann, token:ann, bootstrap, or sluice for what happened by itself
	Action string          // create, restock, cancel, …
	SaleID string          // empty where the action concerns no sale
	Detail json.RawMessage // an object: what it was done to, why, and the rest
}

// Change splits the detail into the state before, the state after, and the rest. Either state is nil where the line
// has none: what is created was nothing before.
func (e *Entry) Change() (before, after, rest json.RawMessage) {
	var detail map[string]json.RawMessage
	if json.Unmarshal(e.Detail, &detail) != nil {
		return nil, nil, e.Detail // Postgres allows objects only
	}
	before, after = detail["before"], detail["after"]
	if before == nil && after == nil && e.Action == "create" {
		return nil, e.Detail, json.RawMessage("{}")
	}
	delete(detail, "before")
	delete(detail, "after")
	rest, err := json.Marshal(detail)
	if err != nil {
		return nil, nil, e.Detail
	}
	return before, after, rest
}
