package view

import (
	"strconv"

	"sluice/pipeline/erasure"
)

// Erasure is the replacement of one buyer's id by a pseudonym.
type Erasure struct {
	ID          string  `json:"id"`
	Pseudonym   string  `json:"pseudonym"`
	Actor       string  `json:"actor"`
	RequestedAt string  `json:"requested_at"`
	LookedAt    *string `json:"looked_at"`   // when it was worked on last
	WaitsFor    int     `json:"waits_for"`   // sales with something of the buyer that Redis still had then
	Rows        int64   `json:"rows"`        // that were changed
	FinishedAt  *string `json:"finished_at"` // null: something is left
}

// NewErasure views an erasure.
func NewErasure(e *erasure.Erasure) Erasure {
	return Erasure{
		strconv.FormatInt(e.ID, 10), e.Pseudonym, e.Actor, Time(e.RequestedAt), TimeOrNil(e.LookedAt), e.WaitsFor, e.Rows,
		TimeOrNil(e.FinishedAt),
	}
}

// NewErasures views a list.
func NewErasures(list []erasure.Erasure) []Erasure { return views(list, NewErasure) }
