package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sluice/pipeline"
	"sluice/pipeline/overview"
	"sluice/pipeline/payments"
	"sluice/webhook"
)

// paymentsView are payments, as a filter chooses them.
type paymentsView struct {
	Outcome  payments.Outcome
	Sale     string
	Outcomes []outcomeLink
	Rows     []payments.Payment
	Next     string
}

type outcomeLink struct {
	Outcome payments.Outcome
	Path    string
	On      bool
}

func (c *console) listPayments(q *request) error {
	form := q.URL.Query()
	v := paymentsView{Outcome: payments.Outcome(form.Get("outcome")), Sale: strings.TrimSpace(form.Get("sale"))}
	if v.Outcome != "" && !slices.Contains(payments.StoredOutcomes, v.Outcome) {
		return pipeline.Errorf(pipeline.KindInvalid, "there is no such outcome of a payment")
	}
	filter := payments.Filter{SaleID: v.Sale, Outcome: v.Outcome, Limit: listed}
	if after := form.Get("after"); after != "" {
		var err error
		if filter.After, err = strconv.ParseInt(after, 10, 64); err != nil {
			return pipeline.Errorf(pipeline.KindInvalid, "after: it must be the id of a payment")
		}
	}
	var err error
	if v.Rows, err = c.Store.Payments(q.Context(), filter); err != nil {
		return err
	}
	if len(v.Rows) == listed {
		form.Set("after", strconv.FormatInt(v.Rows[listed-1].ID, 10))
		v.Next = root + "payments?" + form.Encode()
	}
	for _, outcome := range append([]payments.Outcome{""}, payments.StoredOutcomes...) {
		to := url.Values{}
		if outcome != "" {
			to.Set("outcome", string(outcome))
		}
		if v.Sale != "" {
			to.Set("sale", v.Sale)
		}
		v.Outcomes = append(v.Outcomes, outcomeLink{outcome, root + "payments?" + to.Encode(), outcome == v.Outcome})
	}
	return q.render(http.StatusOK, "payments", page{Title: "Payments", Section: "Payments", Body: v})
}

func (c *console) listEndpoints(q *request) error {
	endpoints, err := c.Store.Endpoints(q.Context())
	if err != nil {
		return err
	}
	return q.render(http.StatusOK, "endpoints", page{
		Title: "Endpoints", Section: "Endpoints", Body: struct{ Rows []webhook.Endpoint }{endpoints},
	})
}

// settingsView is what this program runs with, and what the servers say of themselves.
type settingsView struct {
	*overview.Glance
	Settings []Setting
	Version  string
}

func (c *console) showSettings(q *request) error {
	return q.render(http.StatusOK, "settings", page{
		Title: "Settings", Section: "Settings",
		Body: settingsView{c.Overview.Glance(q.Context()), c.Settings, c.Version},
	})
}
