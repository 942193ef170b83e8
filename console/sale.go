package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/operator"
	"sluice/pipeline/overview"
)

// saleView is one sale: where its units are, and what can be done.
type saleView struct {
	Sale     *pipeline.Sale
	At       time.Time
	Phase    string
	Why      string // why buyers see that phase
	Units    overview.Units
	Unknown  string // why the units are not known; empty: they are
	Bar      []barPart
	Loaded   bool
	Price    string
	Actions  []action
	ReadOnly bool // this token may change nothing
	Log      []logRow
	Sparse   bool // the log could not be read
}

// barPart is one part of all units.
type barPart struct {
	Name, Class, Why string
	Units            int64
	X, Width         string // percent
}

// action is something that can be done to a sale, or why it can't.
type action struct {
	Name, Path, Why string // Why is set where it can't be done
	Danger          bool
}

// loggedOnPage is how much of the audit log a page shows of its own.
const loggedOnPage = 8

func (c *console) sale(q *request) (*pipeline.Sale, error) {
	id := q.PathValue("sale")
	if !pipeline.ValidSaleID(id) {
		return nil, pipeline.Errorf(pipeline.KindNotFound, "there is no such sale")
	}
	return c.Store.Sale(q.Context(), id)
}

func (c *console) showSale(q *request) error {
	sale, err := c.sale(q)
	if err != nil {
		return err
	}
	body := c.saleNow(q.Context(), sale, q.who.Role)
	entries, err := c.Store.AuditLog(q.Context(), auditlog.Filter{SaleID: sale.ID, Limit: loggedOnPage})
	body.Log, body.Sparse = logRows(entries), err != nil
	return q.render(http.StatusOK, "sale", page{
		Title: sale.Title, Section: "Overview", Body: body, Live: root + "sales/" + sale.ID + "/live",
	})
}

func (c *console) streamSale(q *request) error {
	if _, err := c.sale(q); err != nil {
		return err
	}
	return q.stream(func(ctx context.Context) ([]byte, error) {
		sale, err := c.Store.Sale(ctx, q.PathValue("sale"))
		if err != nil {
			return nil, err
		}
		return q.part("sale", c.saleNow(ctx, sale, q.who.Role))
	})
}

func (c *console) saleNow(ctx context.Context, sale *pipeline.Sale, role operator.Role) saleView {
	g := c.Overview.Glance(ctx)
	v := saleView{Sale: sale, At: g.At, Price: "none: amounts of payments are not compared"}
	if sale.UnitPrice > 0 {
		v.Price = fmt.Sprintf("%s per unit", formatMoney(sale.UnitPrice, sale.Currency))
	}
	units, err := c.Overview.Units(ctx, sale)
	var free *int64
	if err == nil {
		v.Units, v.Loaded, free = units, true, &units.Free
		v.Bar = barOf(&units)
	} else {
		v.Unknown = unknownUnits(sale, err)
	}
	v.Phase = view.NewSale(sale, g.At, free).Phase
	v.Why = phaseReason(sale, v.Phase, g.At)
	v.Actions, v.ReadOnly = actionsOn(sale, v.Phase, role), !role.Allows(operator.Operate)
	return v
}

func unknownUnits(sale *pipeline.Sale, err error) string {
	if pipeline.KindOf(err) == pipeline.KindNotLoaded && !sale.RetiredAt.IsZero() {
		return "The sale is over and has left Redis; Postgres has its orders. An audit shows its books."
	}
	var e *pipeline.Error
	if errors.As(err, &e) {
		return sentence(e.Message)
	}
	return "The stores did not answer in time."
}

// phaseReason says why buyers see a phase, and until when.
func phaseReason(sale *pipeline.Sale, phase string, now time.Time) string {
	switch {
	case sale.State == pipeline.SaleClosed:
		return "An operator closed it; that is final."
	case phase == "closed":
		return "Its window was over at " + clock(sale.ClosesAt) + " UTC."
	case phase == "paused":
		return "An operator paused it; buyers are refused until it is resumed. The window goes on, until " +
			clock(sale.ClosesAt) + " UTC."
	case phase == "scheduled":
		return "It opens in " + age(sale.OpensAt.Sub(now)) + "."
	case phase == "sold_out":
		return "No unit is free now; units of unpaid orders come back. It closes in " + age(sale.ClosesAt.Sub(now)) + "."
	default:
		return "It closes in " + age(sale.ClosesAt.Sub(now)) + "."
	}
}

// barOf is where the units are, from those that are certain to those that are free. What moves while orders are added
// up is neither paid nor awaited yet.
func barOf(u *overview.Units) []barPart {
	parts := []barPart{
		{Name: "paid", Class: "paid", Units: u.Paid, Why: "in orders that are paid"},
		{Name: "confirmed", Class: "paid", Units: u.Confirmed, Why: "in orders that need no payment"},
		{Name: "awaiting payment", Class: "awaiting", Units: u.Awaiting, Why: "in orders that can be paid still"},
		{Name: "in flight", Class: "flight", Units: u.InFlight, Why: "accepted, and not in Postgres yet"},
		{
			Name: "on the move", Class: "move", Units: u.OnTheMove,
			Why: "of orders that ended, on their way back into stock",
		},
		{Name: "withdrawn", Class: "gone", Units: u.Withdrawn, Why: "of returned orders, and not put on sale again"},
		{Name: "free", Class: "free", Units: u.Free, Why: "can be ordered"},
	}
	var shown []barPart
	var x int64
	for _, p := range parts {
		if p.Units <= 0 && (p.Name == "confirmed" || p.Name == "withdrawn" || p.Name == "on the move") {
			continue
		}
		p.X, p.Width = percent(x, u.Total), percent(p.Units, u.Total)
		x += max(0, p.Units)
		shown = append(shown, p)
	}
	return shown
}

// actionsOn are what can be done to a sale, each with why it can't be.
func actionsOn(sale *pipeline.Sale, phase string, role operator.Role) []action {
	at := root + "sales/" + sale.ID
	all := []action{{Name: "Audit now", Path: at + "/audit"}}
	if !role.Allows(operator.Operate) {
		return all
	}
	for _, verb := range saleVerbs {
		a := action{Name: verb.button, Path: at + "/change/" + verb.name, Danger: verb.name == "close"}
		if verb.name == "pause" && sale.State == pipeline.SalePaused || verb.name == "resume" && sale.State != pipeline.SalePaused {
			continue
		}
		switch {
		case sale.State == pipeline.SaleClosed:
			a.Why = "the sale is closed, which is final"
		case !sale.OrdersDroppedAt.IsZero():
			a.Why = "its orders are not kept any more"
		case verb.name == "pause" && phase == "closed":
			a.Why = "its window is over"
		}
		all = append(all, a)
	}
	return all
}
