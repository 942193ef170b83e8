package console

import (
	"fmt"
	"net/http"
	"time"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/overview"
)

// waitlistView are those who are served next in a sale.
type waitlistView struct {
	Sale  *pipeline.Sale
	Phase string
	Why   string // why nobody is served now; empty: the first is, as soon as there are units
	Rows  []waiterRow
	More  bool
	Now   time.Time
}

// waiterRow is a buyer who waits, and why.
type waiterRow struct {
	overview.Waiter
	Joined time.Time
	Why    string
}

// showWaitlist shows who is served next, and why nobody is just now.
func (c *console) showWaitlist(q *request) error {
	sale, err := c.sale(q)
	if err != nil {
		return err
	}
	v := waitlistView{Sale: sale, Now: c.Now().UTC(), Phase: view.NewSale(sale, c.Now(), nil).Phase}
	waiters, err := c.Overview.Waitlist(q.Context(), sale, listed)
	if err != nil && pipeline.KindOf(err) != pipeline.KindNotLoaded {
		return err
	}
	v.Why = heldUp(sale, v.Phase)
	v.More = len(waiters) >= listed
	for i := range waiters {
		w := &waiters[i]
		v.Rows = append(v.Rows, waiterRow{*w, time.UnixMilli(w.JoinedMS).UTC(), waitReason(w, v.Why)})
	}
	return q.render(http.StatusOK, "waitlist", page{Title: "Waitlist of " + sale.Title, Section: "Overview", Body: v})
}

// heldUp says why nobody on a waitlist is served, whoever it is.
func heldUp(sale *pipeline.Sale, phase string) string {
	switch {
	case sale.State == pipeline.SaleClosed:
		return "The sale is closed for good: nobody is served any more."
	case phase == "closed":
		return "The window is over: nobody is served unless it is rescheduled."
	case phase == "paused":
		return "The sale is paused: units that come back are kept, and the waitlist is served once it is resumed."
	case phase == "scheduled":
		return "The sale has not opened yet."
	default:
		return ""
	}
}

// waitReason says why a buyer was not served yet: first come, first served, without exception.
func waitReason(w *overview.Waiter, held string) string {
	switch {
	case held != "":
		return "held up like all"
	case w.Place > 1:
		return fmt.Sprintf("%s before, who come first even where they want more units", isAre(int64(w.Place-1), "buyer"))
	case w.Free < int64(w.Quantity):
		return fmt.Sprintf("is next: wants %s, and %s free", plural(w.Quantity, "unit"), isAre(w.Free, "unit"))
	default:
		return "is next, and is served within a second or so"
	}
}
