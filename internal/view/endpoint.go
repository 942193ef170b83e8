package view

import (
	"strconv"

	"sluice/webhook"
)

// Endpoint is a receiver of events, and the state of its deliveries.
type Endpoint struct {
	ID             string   `json:"id"`
	URL            string   `json:"url"`
	Types          []string `json:"types"` // empty: all
	State          string   `json:"state"` // active, failing, withheld or disabled
	CreatedAt      string   `json:"created_at"`
	DisabledAt     *string  `json:"disabled_at"`
	DisabledReason *string  `json:"disabled_reason"`
	Backlog        int64    `json:"backlog"` // events that it has not passed yet, wanted or not
	DeliveredAt    *string  `json:"delivered_at"`
	FailingSince   *string  `json:"failing_since"`
	Attempts       int      `json:"attempts"` // failures in a row
	NextAttemptAt  *string  `json:"next_attempt_at"`
	LastError      *string  `json:"last_error"`
	Missed         int64    `json:"missed"`           // events it never got: dropped after two weeks, or given up when resent
	Secret         string   `json:"secret,omitempty"` // only in the answer to its registration
}

// NewEndpoint views an endpoint without its secret.
func NewEndpoint(e *webhook.Endpoint) Endpoint {
	v := Endpoint{
		ID: strconv.FormatInt(e.ID, 10), URL: e.URL, Types: append([]string{}, e.Types...), State: endpointState(e),
		CreatedAt: Time(e.CreatedAt), DisabledAt: TimeOrNil(e.DisabledAt), DisabledReason: textOrNil(e.DisabledReason),
		Backlog: e.Backlog, DeliveredAt: TimeOrNil(e.DeliveredAt), FailingSince: TimeOrNil(e.FailingSince),
		Attempts: e.Attempts, LastError: textOrNil(e.LastError), Missed: e.Missed,
	}
	if v.State == "failing" {
		v.NextAttemptAt = TimeOrNil(e.NextAttemptAt)
	}
	return v
}

// NewEndpointWithSecret views an endpoint for the operator who has just registered it.
func NewEndpointWithSecret(e *webhook.Endpoint) Endpoint {
	v := NewEndpoint(e)
	v.Secret = e.Secret
	return v
}

// NewEndpoints views a list.
func NewEndpoints(list []webhook.Endpoint) []Endpoint { return views(list, NewEndpoint) }

func endpointState(e *webhook.Endpoint) string {
	switch {
	case e.Disabled():
		return "disabled"
	case e.Attempts > 0:
		return "failing"
	case e.Withheld():
		return "withheld"
	default:
		return "active"
	}
}

// Delivery is the result of a delivery by hand.
type Delivery struct {
	Result string  `json:"result"` // delivered, refused, gone, failed or unsigned
	Status *int    `json:"status"` // of the receiver's answer; null without one
	Error  *string `json:"error"`
	TookMs int64   `json:"took_ms"`
}

// NewDelivery views a result.
func NewDelivery(r *webhook.Result) Delivery {
	v := Delivery{Result: string(r.Outcome), Error: textOrNil(r.Error), TookMs: r.Took.Milliseconds()}
	if r.Status != 0 {
		v.Status = &r.Status
	}
	return v
}
