package console

import (
	"fmt"
	"strings"
	"time"

	"sluice/pipeline/overview"
)

const (
	// lateAfter is when an order that is not stored yet is worth looking at: the objective is a second. stuckAfter is when
	// something is broken: a dead worker's orders are taken over within twenty seconds.
	lateAfter, stuckAfter = 5 * time.Second, 30 * time.Second
)

// alarm is something that is wrong: what, why, and what to do about it.
type alarm struct {
	Tone  string // bad: orders or money are in danger, or nobody can order; warn: somebody should look
	Title string
	Why   string
	Do    string
	Path  string // a page that shows more; empty: there is none
	Link  string
	Alert string // the alert of Prometheus about the same, and its section in docs/runbook.md; empty: there is none
}

// alarmsOf are what is wrong, the worst first. None: all is well.
func alarmsOf(g *overview.Glance) []alarm {
	var bad, warn []alarm
	for _, a := range append(alarmsOfStores(g), append(alarmsOfWorkers(g), alarmsOfBooks(g)...)...) {
		if a.Tone == "bad" {
			bad = append(bad, a)
		} else {
			warn = append(warn, a)
		}
	}
	return append(bad, warn...)
}

func alarmsOfStores(g *overview.Glance) (found []alarm) {
	if g.Redis != nil {
		found = append(found, alarm{
			Alert: "SluiceRedisAway",
			Tone:  "bad", Title: "Redis can't be seen", Why: sentence(messageOf(g.Redis)),
			Do: "If Redis is down, nobody can order; accepted orders are on its disk and in the apis' journals. Bring the same " +
				"server back; don't start an empty one in its place.",
		})
	}
	if g.Postgres != nil {
		found = append(found, alarm{
			Alert: "SluicePostgresAway",
			Tone:  "bad", Title: "Postgres can't be seen", Why: sentence(messageOf(g.Postgres)),
			Do: "Buyers can order all the same: what is accepted waits in Redis, and is stored once Postgres is back.",
		})
	}
	if closed := g.Untrusted(); len(closed) > 0 {
		names := make([]string, len(closed))
		for i, p := range closed {
			names[i] = p.String()
		}
		found = append(found, alarm{
			Alert: "SluicePartitionClosed",
			Tone:  "bad", Title: fmt.Sprintf("Nobody can order on %s of %d", plural(len(closed), "partition"), len(g.Trusted)),
			Why: "Redis was restarted, replaced or restored, and what it has is not verified yet: " +
				strings.Join(names, ", ") + ".",
			Do: "An api or a worker verifies it by itself, usually within seconds. If this stays, the log of an api says what " +
				"it waits for.",
		})
	}
	if g.Obstacle != nil {
		found = append(found, alarm{
			Tone: "bad", Title: "Redis can't keep what receipts promise", Why: sentence(messageOf(g.Obstacle)),
			Do: "Change the setting on the server; no program needs a restart for it.", Path: root + "settings", Link: "Settings",
		})
	}
	return found
}

func alarmsOfWorkers(g *overview.Glance) (found []alarm) {
	if g.Redis != nil {
		return nil
	}
	lag, pending, oldest := g.Lag()
	waiting, alive := lag+pending, g.Alive()
	if alive == 0 {
		found = append(found, alarm{
			Alert: "SluiceNoWorker",
			Tone:  "bad", Title: "No worker is alive",
			Why: fmt.Sprintf("%s on disk in Redis, and nobody stores them in Postgres. Payments of these orders wait, too, "+
				"and units of unpaid orders don't come back.", waitingText(waiting)),
			Do:   "Start a worker. It takes over everything that waits; nothing need be repaired.",
			Path: root + "workers", Link: "Workers",
		})
		return found
	}
	if orphaned := g.Orphaned(); orphaned > 0 {
		found = append(found, alarm{
			Tone: "warn", Title: "A worker died with orders in hand",
			Why:  fmt.Sprintf("%s pending with it.", isAre(orphaned, "order")),
			Do:   "Nothing: the other workers take them over within twenty seconds.",
			Path: root + "workers", Link: "Workers",
		})
	}
	if old := g.At.Sub(oldest); !oldest.IsZero() && old > lateAfter {
		tone, do := "warn", "More workers drain a backlog faster, as long as Postgres keeps up."
		if old > stuckAfter {
			tone, do = "bad", "The log of a worker says what it waits for: Postgres, a lock, or an order that it can't store."
		}
		found = append(found, alarm{
			Alert: "SluiceOrdersStoredLate",
			Tone:  tone, Title: "Orders are stored late",
			Why: fmt.Sprintf("The oldest of %s that wait was accepted %s ago.", plural(waiting, "order"), age(old)),
			Do:  do, Path: root + "workers", Link: "Workers",
		})
	}
	return found
}

func waitingText(n int64) string {
	if n == 0 {
		return "No order waits at the moment; what is accepted from now on waits"
	}
	if n == 1 {
		return "1 accepted order waits"
	}
	return number(n) + " accepted orders wait"
}

func isAre(n int64, one string) string {
	if n == 1 {
		return "1 " + one + " is"
	}
	return plural(n, one) + " are"
}

func alarmsOfBooks(g *overview.Glance) (found []alarm) {
	for i := range g.Sales {
		s := &g.Sales[i]
		path := root + "sales/" + s.Sale.ID
		if s.Checked && s.Drift.Exact && s.Drift.Units != 0 {
			what := plural(s.Drift.Units, "unit") + " missing"
			if s.Drift.Units < 0 {
				what = plural(-s.Drift.Units, "unit") + " too many, which could be sold twice"
			}
			found = append(found, alarm{
				Alert: "SluiceUnitsDrift",
				Tone:  "bad", Title: "The units of " + s.Sale.ID + " don't add up", Why: sentence(what),
				Do: "Audit the sale, to see which; a worker takes units out that are too many by itself.",
				// A change on its way to Redis looks like this for a moment.
				Path: path + "/audit", Link: "Audit now",
			})
		}
		if g.Redis == nil && !s.Loaded && s.Sale.Phase(g.At) != "closed" {
			found = append(found, alarm{
				Alert: "SluiceBuyersTurnedAway",
				Tone:  "bad", Title: "Redis does not have " + s.Sale.ID, Why: "Nobody can order in it.",
				Do:   "A worker loads a new sale, and rebuilds one that was lost, within seconds; its log says what it waits for.",
				Path: path, Link: "The sale",
			})
		}
	}
	if n := g.Duties.Letters; n > 0 {
		found = append(found, alarm{
			Alert: "SluiceDeadLetters",
			Tone:  "warn", Title: plural(n, "dead letter") + " to decide",
			Why: "These accepted orders could not be stored; their buyers were promised something.",
			Do:  "Read why, then replay or discard each.", Path: root + "dead-letters", Link: "Dead letters",
		})
	}
	if n := g.Duties.RefundsDue; n > 0 {
		found = append(found, alarm{
			Alert: "SluiceRefundsDue",
			Tone:  "warn", Title: plural(n, "payment") + " to pay back",
			Why: "Money came for orders that had ended, or was paid twice, or its order was returned.",
			Do:  "Pay it back with the provider; its webhook notes that here.", Path: root + "payments?outcome=refund_due",
			Link: "Refunds due",
		})
	}
	return found
}
