package webhook

import (
	"context"
	"time"

	"sluice/pipeline"
)

const (
	// announceEvery is how late others learn that a sale has opened or closed by time.
	announceEvery = time.Second
	// announceBatch is how many sales one transaction announces, whose rows it locks.
	announceBatch = 100
)

// PhaseStore writes the events of sales that opened or closed by the passing of time.
type PhaseStore interface {
	// AnnounceSalePhases announces up to limit sales that entered a phase which was not noted yet, and returns how many
	// did. However often it is called, and by how many at once, each change is one event.
	AnnounceSalePhases(ctx context.Context, limit int) (int, error)
}

// Announcer writes the events that no statement of anybody causes: those of time.
type Announcer struct{ store PhaseStore }

// NewAnnouncer returns an Announcer over a store.
func NewAnnouncer(store PhaseStore) *Announcer { return &Announcer{store: store} }

// Job announces each second.
func (a *Announcer) Job() pipeline.Job {
	return pipeline.Job{Name: "announce", Every: announceEvery, Run: a.announce}
}

func (a *Announcer) announce(ctx context.Context) error {
	for ctx.Err() == nil {
		announced, err := a.store.AnnounceSalePhases(ctx, announceBatch)
		if err != nil || announced < announceBatch {
			return err
		}
	}
	return ctx.Err()
}
