package demo

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/programs"
	"sluice/internal/table"
)

// How package pipeline logs that a worker takes over from a dead one.
const (
	messageTaken = "took over pending events"
	reasonDead   = "dead_worker"
)

// keptSerious is how many lines of warning are shown when something went wrong.
const keptSerious = 20

type takenOver struct {
	worker string
	orders int
	at     time.Time
}

// hear notes what the members say that belongs to the story.
func (s *show) hear(line programs.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line.Message == messageTaken && line.Field("reason") == reasonDead {
		var orders int
		_, _ = fmt.Sscan(line.Field("events"), &orders) // 0 then fails the check
		s.taken = append(s.taken, takenOver{line.Process, orders, line.Time})
	}
	if line.Serious() && !strings.HasPrefix(line.Message, "AUTH_MODE=dev") {
		s.serious = append(s.serious, table.Printable(line.Process+": "+line.Text()))
		s.serious = s.serious[max(0, len(s.serious)-keptSerious):]
	}
}

// takeovers adds up what each worker took over.
func (s *show) takeovers(since time.Time) []Takeover {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Takeover
	for _, t := range s.taken {
		i := slices.IndexFunc(list, func(known Takeover) bool { return known.Worker == t.worker })
		if i < 0 {
			list = append(list, Takeover{Worker: t.worker, AfterMS: t.at.Sub(since).Milliseconds()})
			i = len(list) - 1
		}
		list[i].Orders += t.orders
	}
	return list
}
