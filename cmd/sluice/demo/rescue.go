package demo

import (
	"context"
	"fmt"
	"time"
)

// awaitRescue returns when Postgres has all that the dead worker held, or when that takes too long.
func (s *show) awaitRescue(ctx context.Context) error {
	a := s.accident
	for time.Since(a.at) < rescueLimit && ctx.Err() == nil {
		n, err := s.ledger.persisted(ctx, a.orderIDs)
		if err != nil {
			return err
		}
		if n == a.InHand {
			a.PersistedMS = max(1, time.Since(a.at).Milliseconds())
			return nil
		}
		sleep(ctx, countEvery)
	}
	return ctx.Err() // the checks say what is missing
}

// tellRescue says who took over, as the living workers logged it.
func (s *show) tellRescue() {
	a := s.accident
	for _, t := range s.takeovers(a.at) {
		a.Takeovers = append(a.Takeovers, t)
		s.voice.notef("✓ %s noticed after %s and took over %s", t.Worker, seconds(t.AfterMS), plural(t.Orders, "order"))
	}
	switch {
	case a.Uncommitted == 0:
		s.voice.notef("✓ Postgres had everything the dead worker held: only its acknowledgement was missing")
	case a.PersistedMS > 0:
		s.voice.notef("✓ everything the dead worker held was in Postgres %s after its death", seconds(a.PersistedMS))
	}
}

// rescued is what must be true of the accident.
func (a *Accident) rescued() Check {
	c := Check{Name: "what the killed worker held was persisted by others"}
	if a == nil {
		c.Detail = "no worker was killed"
		return c
	}
	orders := 0
	for _, t := range a.Takeovers {
		orders += t.Orders
	}
	c.OK = a.InHand > 0 && orders >= a.InHand && a.PersistedMS > 0
	c.Detail = fmt.Sprintf("%d in its hands, %d taken over", a.InHand, orders)
	return c
}

func seconds(ms int64) string { return fmt.Sprintf("%.1f s", float64(ms)/1000) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
