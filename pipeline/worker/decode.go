package worker

import (
	"sluice/pipeline"
	"sluice/pipeline/deadletter"
)

// decode separates the entries that can be read from those that can't.
func decode(entries []entry) (events []pipeline.Event, unreadable []refusedEvent) {
	events = make([]pipeline.Event, 0, len(entries))
	for _, e := range entries {
		event, err := pipeline.DecodeEvent(e.partition, e.id, e.fields)
		if err != nil {
			bare := lockedEvent{Event: pipeline.Event{Partition: e.partition, EntryID: e.id}}
			unreadable = append(unreadable, refusedEvent{lockedEvent: bare, reason: deadletter.Undecodable, cause: err})
			continue
		}
		events = append(events, event)
	}
	return events, unreadable
}

// refusedEvent is an event that can't become an order that stands.
type refusedEvent struct {
	lockedEvent
	reason string
	cause  error
}
