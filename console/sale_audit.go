package console

import (
	"net/http"

	"sluice/internal/view"
	"sluice/pipeline"
)

// auditView is what an audit has found.
type auditView struct {
	view.Audit
	Title string
	Sums  []sum
}

// sum is a line of the proof that no unit is missing.
type sum struct {
	What  string
	Units int64
	Why   string
}

// auditSale proves that not one unit was lost or sold twice. It changes nothing.
func (c *console) auditSale(q *request) error {
	sale, err := c.sale(q)
	if err != nil {
		return err
	}
	body := auditView{Title: sale.Title}
	report, err := c.Auditor.Audit(q.Context(), sale)
	switch {
	case pipeline.KindOf(err) == pipeline.KindNotLoaded:
		body.Audit = view.LostSale(sale, messageOf(err))
	case err != nil:
		return err
	default:
		body.Audit = view.NewAudit(report)
		body.Sums = []sum{
			{"Units in all", report.Total, "as Postgres defines the sale"},
			{"in live orders", -report.Live, "rows in Postgres: paid, confirmed or awaiting payment"},
			{"in flight", -report.InFlight, "in the stream, without a row yet"},
			{"on the move", -report.Unapplied, "of ended orders, on their way back into stock"},
			{"between partitions", -report.Moving, "taken out of one partition of the sale, and not in another one yet"},
			{"withdrawn", -report.Withdrawn, "of returned orders, and not put on sale again"},
			{"free", -report.Stock, "left in Redis"},
		}
	}
	return q.render(http.StatusOK, "audit", page{Title: "Audit of " + sale.Title, Section: "Overview", Body: body})
}
