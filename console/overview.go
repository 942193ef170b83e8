package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"sluice/internal/view"
	"sluice/pipeline/overview"
)

// overviewView is the page that somebody looks at during a sale.
type overviewView struct {
	*overview.Glance
	Alarms       []alarm
	Lag, Pending int64
	Waiting      int64
	Oldest       time.Duration // 0: nothing waits
	OldestTone   string
	Workers      int // alive
	Dead         int
	Drift        int64
	DriftChecked bool
	Trusts       string
	TrustTone    string

	Filter salesFilter
	Rows   []saleRow
	Phases []phaseCount
	Chosen int // sales that the filter chooses, of which maxRows are shown
	Listed int // sales in all
}

// maxRows is how many sales the page shows: it is sent again with every change of one of them.
const maxRows = 100

// salesFilter is what of the sales is shown, as it stands in the address.
type salesFilter struct{ Text, Phase string }

// phaseCount is a phase with the number of sales that the text chooses: counters follow the filter.
type phaseCount struct {
	Phase string
	N     int
	Path  string
	On    bool
}

// saleRow is a sale in the list.
type saleRow struct {
	overview.SaleGlance
	Phase string
	Taken int64
}

func (c *console) showOverview(q *request) error {
	filter := salesFilterOf(q)
	body := c.overviewNow(q.Context(), filter)
	return q.render(http.StatusOK, "overview", page{
		Title: "Overview", Section: "Overview", Body: body, Live: root + "live?" + filter.values().Encode(),
	})
}

func (c *console) streamOverview(q *request) error {
	filter := salesFilterOf(q)
	return q.stream(func(ctx context.Context) ([]byte, error) {
		return q.part("overview", c.overviewNow(ctx, filter))
	})
}

func salesFilterOf(q *request) salesFilter {
	return salesFilter{Text: strings.TrimSpace(q.URL.Query().Get("q")), Phase: q.URL.Query().Get("phase")}
}

func (f salesFilter) values() url.Values {
	v := url.Values{}
	if f.Text != "" {
		v.Set("q", f.Text)
	}
	if f.Phase != "" {
		v.Set("phase", f.Phase)
	}
	return v
}

func (c *console) overviewNow(ctx context.Context, filter salesFilter) overviewView {
	g := c.Overview.Glance(ctx)
	v := overviewView{Glance: g, Alarms: alarmsOf(g), Filter: filter, Workers: g.Alive(), Listed: len(g.Sales)}
	v.Dead = len(g.Workers) - v.Workers
	var oldest time.Time
	v.Lag, v.Pending, oldest = g.Lag()
	v.Waiting = v.Lag + v.Pending
	if !oldest.IsZero() {
		v.Oldest = max(time.Millisecond, g.At.Sub(oldest))
		v.OldestTone = lateness(v.Oldest)
	}
	for i := range g.Sales {
		if s := &g.Sales[i]; s.Checked && s.Drift.Exact {
			v.DriftChecked = true
			v.Drift += max(s.Drift.Units, -s.Drift.Units)
		}
	}
	v.Trusts, v.TrustTone = trustText(g)
	v.list(g)
	return v
}

// lateness is the colour of how long the oldest order waits.
func lateness(old time.Duration) string {
	switch {
	case old > stuckAfter:
		return "bad"
	case old > lateAfter:
		return "warn"
	default:
		return "good"
	}
}

// trustText says what a receipt of this moment promises.
func trustText(g *overview.Glance) (text, tone string) {
	switch {
	case g.Redis != nil:
		return "unknown", "bad"
	case g.Obstacle != nil, len(g.Untrusted()) > 0:
		return string(g.Features.Durability()), "bad"
	default:
		return string(g.Features.Durability()), "good"
	}
}

// phases are in the order in which somebody wants to see them.
var phases = []string{"open", "sold_out", "paused", "scheduled", "closed"}

// list chooses the sales that the filter does.
func (v *overviewView) list(g *overview.Glance) {
	counts := map[string]int{}
	for i := range g.Sales {
		row := saleRow{SaleGlance: g.Sales[i]}
		var free *int64
		if row.Loaded {
			free = &row.Free
			row.Taken = max(0, row.Sale.Total-row.Free)
		}
		row.Phase = view.NewSale(row.Sale, g.At, free).Phase
		text := strings.ToLower(v.Filter.Text)
		if !strings.Contains(row.Sale.ID, text) && !strings.Contains(strings.ToLower(row.Sale.Title), text) {
			continue
		}
		counts[row.Phase]++
		if v.Filter.Phase != "" && v.Filter.Phase != row.Phase {
			continue
		}
		if v.Chosen++; len(v.Rows) < maxRows {
			v.Rows = append(v.Rows, row)
		}
	}
	all := 0
	for _, phase := range phases {
		all += counts[phase]
		v.Phases = append(v.Phases, v.phase(phase, counts[phase]))
	}
	v.Phases = slices.Insert(v.Phases, 0, v.phase("", all))
}

func (v *overviewView) phase(phase string, n int) phaseCount {
	at := root
	if query := (salesFilter{v.Filter.Text, phase}).values().Encode(); query != "" {
		at += "?" + query
	}
	return phaseCount{Phase: phase, N: n, Path: at, On: v.Filter.Phase == phase}
}

func (c *console) showWorkers(q *request) error {
	body := c.overviewNow(q.Context(), salesFilter{})
	return q.render(http.StatusOK, "workers", page{
		Title: "Workers", Section: "Workers", Body: body, Live: root + "workers/live",
	})
}

func (c *console) streamWorkers(q *request) error {
	return q.stream(func(ctx context.Context) ([]byte, error) {
		return q.part("workers", c.overviewNow(ctx, salesFilter{}))
	})
}
