package main

import (
	"fmt"
	"time"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/webhook"
)

// eventCmd groups what can be asked about events for other systems.
type eventCmd struct {
	Ls eventList `cmd:"" aliases:"list" help:"List the events that are kept, the newest last."`
}

type eventList struct {
	Sale  string `placeholder:"ID" help:"Only events of this sale."`
	Order string `placeholder:"ID" help:"Only events of this order."`
	Type  string `placeholder:"TYPE" help:"Only events of this type; docs/webhooks.md lists them."`
	Since string `placeholder:"TIME" help:"Only events from then on: RFC 3339, or 2h for two hours ago."`
	Until string `placeholder:"TIME" help:"Only events before then, in the same form."`
	After int64  `placeholder:"N" help:"Only events with a greater position: the last one of the page before."`
	Limit int    `default:"100" placeholder:"N" help:"Events at most, 1 to 500; default 100."`
}

// Run lists events. What they contain is in the JSON only.
func (c *eventList) Run(a *app) error {
	filter := webhook.EventFilter{SaleID: c.Sale, OrderID: c.Order, Type: c.Type, After: c.After, Limit: c.Limit}
	var err error
	if filter.Since, err = past("--since", c.Since, time.Now()); err != nil {
		return err
	}
	if filter.Until, err = past("--until", c.Until, time.Now()); err != nil {
		return err
	}
	if err := filter.Validate(); err != nil {
		return err
	}
	return a.withEndpoints(func(endpoints *webhook.EndpointService) error {
		events, err := endpoints.Events(a.ctx, filter)
		if err != nil {
			return err
		}
		views, last := view.NewEvents(events), ""
		t := table.New(">POSITION", "TIME", "TYPE", "SALE", "ORDER", "EVENT")
		for i := range events {
			e := &events[i]
			last = views[i].Position
			t.Row(last, shortTime(e.CreatedAt), e.Type, e.SaleID, e.OrderID, e.ID)
		}
		err = printList(a, views, t, "No events. They are written while an endpoint is registered, and kept for a week.")
		a.sayMore(len(views), c.Limit, last)
		return err
	})
}

// past reads a time as it is typed: 2h (ago), or RFC 3339. It is zero without a text.
func past(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, usagef("%s %s: use RFC 3339 such as 2026-11-27T09:00:00Z, or 2h for two hours ago", flag,
			oneLine(text))
	}
	return at, nil
}

type endpointResend struct {
	explained
	ID    int64  `arg:"" help:"Id of the endpoint."`
	Event string `placeholder:"ID" help:"The one event to send."`
	From  int64  `placeholder:"N" help:"Position of the first event to send; sluice event ls shows positions."`
	To    int64  `placeholder:"N" help:"Position of the last one; default: the last that the endpoint has passed."`
	Sale  string `placeholder:"ID" help:"Only events of this sale."`
	Order string `placeholder:"ID" help:"Only events of this order."`
	Type  string `placeholder:"TYPE" help:"Only events of this type."`
}

// Run has events sent once more.
func (c *endpointResend) Run(a *app) error {
	if (c.Event == "") == (c.From == 0) {
		return usagef("name one event with --event, or a range with --from and --to")
	}
	return a.withEndpoints(func(endpoints *webhook.EndpointService) error {
		resent, err := endpoints.Resend(a.ctx, actor(), c.ID, webhook.ResendRequest{
			EventID: c.Event, From: c.From, To: c.To, SaleID: c.Sale, OrderID: c.Order, Type: c.Type,
		})
		if err != nil {
			return unknownEndpoint(err)
		}
		more := ""
		if resent.More {
			more = fmt.Sprintf(" There may be more; --from %d sends the rest.", resent.Last+1)
		}
		return a.answer(view.NewResent(c.ID, resent), "Endpoint %d gets %d events once more.%s", c.ID, resent.Events, more)
	})
}

type endpointReplay struct {
	explained
	ID   int64 `arg:"" help:"Id of the endpoint."`
	From int64 `required:"" placeholder:"N" help:"Position of the first event to send; sluice event ls shows positions."`
}

// Run has an endpoint begin again at an earlier position.
func (c *endpointReplay) Run(a *app) error {
	return a.changeEndpoint("gets everything from there on once more",
		func(endpoints *webhook.EndpointService) (webhook.Endpoint, error) {
			return endpoints.Replay(a.ctx, actor(), c.ID, c.From)
		})
}
