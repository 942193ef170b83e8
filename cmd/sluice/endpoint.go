package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"sluice/internal/process"
	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/webhook"
)

// endpointCmd groups what can be done with the receivers of events.
type endpointCmd struct {
	Add     endpointAdd     `cmd:"" help:"Register an endpoint, and show its secret this once."`
	Ls      endpointList    `cmd:"" aliases:"list" help:"List endpoints and how their deliveries stand."`
	Enable  endpointEnable  `cmd:"" help:"Let a disabled endpoint continue where it stopped."`
	Disable endpointDisable `cmd:"" help:"Deliver nothing to an endpoint until it is enabled."`
	Rotate  endpointRotate  `cmd:"" help:"Give an endpoint another secret, and show it this once."`
	Encrypt endpointEncrypt `cmd:"" help:"Store all secrets under the first of ENCRYPTION_KEYS."`
	Remove  endpointRemove  `cmd:"" help:"Remove an endpoint and the events that it has not received."`
	Resend  endpointResend  `cmd:"" help:"Send one event, or a range of them, once more."`
	Replay  endpointReplay  `cmd:"" help:"Begin again at an earlier position, for a receiver that lost its data."`
	Test    endpointTest    `cmd:"" help:"Send a sluice.test event at once. Exit code 1 if it was not taken."`
}

type endpointAdd struct {
	secretive
	URL   string   `name:"url" required:"" placeholder:"URL" help:"Where events are sent: https, and not inside the network unless WEBHOOK_ALLOW_PRIVATE=true."`
	Types []string `placeholder:"TYPE,..." help:"Which events, such as order.paid,sale.sold_out; docs/webhooks.md lists the types; default all."`
}

// Run registers the endpoint. Unknown types are refused before any server is asked.
func (c *endpointAdd) Run(a *app) error {
	if err := webhook.ValidateTypes(c.Types); err != nil {
		return err
	}
	return a.withEndpoints(func(endpoints *webhook.EndpointService) error {
		e, err := endpoints.Add(a.ctx, actor(), c.URL, c.Types)
		if err != nil {
			return err
		}
		return a.answer(view.NewEndpointWithSecret(&e),
			"Endpoint %d is registered for %s. Its secret, which is not shown again:\n%s",
			e.ID, typesText(e.Types), e.Secret)
	})
}

type endpointList struct{}

// Run lists all endpoints: there are few.
func (c *endpointList) Run(a *app) error {
	return a.withEndpoints(func(endpoints *webhook.EndpointService) error {
		list, err := endpoints.Endpoints(a.ctx)
		if err != nil {
			return err
		}
		views := view.NewEndpoints(list)
		t := table.New("ID", "URL", "TYPES", "STATE", ">BACKLOG", ">MISSED", "DELIVERED", "TROUBLE")
		for i := range list {
			e := &list[i]
			delivered := "never"
			if !e.DeliveredAt.IsZero() {
				delivered = shortTime(e.DeliveredAt)
			}
			t.Row(views[i].ID, e.URL, typesText(e.Types), views[i].State, e.Backlog, e.Missed, delivered, troubleText(e))
		}
		return printList(a, views, t, "No endpoints; events about orders are not delivered.")
	})
}

func troubleText(e *webhook.Endpoint) string {
	switch {
	case e.Disabled():
		return e.DisabledReason
	case e.Attempts > 0:
		return e.LastError + "; next attempt " + shortTime(e.NextAttemptAt)
	default:
		return ""
	}
}

func typesText(types []string) string { return cmp.Or(strings.Join(types, ","), "all events") }

type endpointEnable struct {
	explained
	ID       int64 `arg:"" help:"Id of the endpoint."`
	SkipNext bool  `help:"Leave out the event that is next for it, because it can't be delivered."`
}

// Run enables the endpoint.
func (c *endpointEnable) Run(a *app) error {
	return a.changeEndpoint("continues where it stopped", func(endpoints *webhook.EndpointService) (webhook.Endpoint, error) {
		return endpoints.EnableEndpoint(a.ctx, actor(), c.ID, c.SkipNext)
	})
}

type endpointDisable struct {
	explained
	ID int64 `arg:"" help:"Id of the endpoint."`
}

// Run disables the endpoint.
func (c *endpointDisable) Run(a *app) error {
	return a.changeEndpoint("is disabled; events are kept for it for two weeks",
		func(endpoints *webhook.EndpointService) (webhook.Endpoint, error) {
			return endpoints.DisableEndpoint(a.ctx, actor(), c.ID)
		})
}

func (a *app) changeEndpoint(done string, change func(*webhook.EndpointService) (webhook.Endpoint, error)) error {
	return a.withEndpoints(func(endpoints *webhook.EndpointService) error {
		e, err := change(endpoints)
		if err != nil {
			return unknownEndpoint(err)
		}
		return a.answer(view.NewEndpoint(&e), "Endpoint %d %s.", e.ID, done)
	})
}

type endpointRotate struct {
	explained
	ID   int64         `arg:"" help:"Id of the endpoint."`
	Keep time.Duration `default:"24h" placeholder:"TIME" help:"How long events are signed with the secret before as well, 0s to 168h; 0s when somebody else has it."`
}

func (c *endpointRotate) secret() {}

// Run replaces the secret.
func (c *endpointRotate) Run(a *app) error {
	return a.withEndpoints(func(endpoints *webhook.EndpointService) error {
		e, err := endpoints.Rotate(a.ctx, actor(), c.ID, c.Keep)
		if err != nil {
			return unknownEndpoint(err)
		}
		return a.answer(view.NewEndpointWithSecret(&e),
			"Endpoint %d has a new secret, which is not shown again; the one before counts for %s more:\n%s",
			e.ID, c.Keep, e.Secret)
	})
}

type endpointEncrypt struct{ explained }

// Run encrypts what is not encrypted under the first key.
func (c *endpointEncrypt) Run(a *app) error {
	return a.withEndpoints(func(endpoints *webhook.EndpointService) error {
		changed, err := endpoints.Encrypt(a.ctx, actor())
		if err != nil {
			return err
		}
		return a.answer(map[string]int{"encrypted": changed}, "%s encrypted under the first key.", secretsText(changed))
	})
}

func secretsText(n int) string {
	if n == 1 {
		return "The secrets of 1 endpoint are now"
	}
	return fmt.Sprintf("The secrets of %d endpoints are now", n)
}

type endpointRemove struct {
	explained
	ID int64 `arg:"" help:"Id of the endpoint."`
}

// Run removes the endpoint.
func (c *endpointRemove) Run(a *app) error {
	return a.withEndpoints(func(endpoints *webhook.EndpointService) error {
		if err := endpoints.RemoveEndpoint(a.ctx, actor(), c.ID); err != nil {
			return unknownEndpoint(err)
		}
		return a.answer(map[string]int64{"removed": c.ID}, "Endpoint %d is removed.", c.ID)
	})
}

type endpointTest struct {
	ID int64 `arg:"" help:"Id of the endpoint."`
}

// Run tests the endpoint.
func (c *endpointTest) Run(a *app) error {
	return a.withEndpoints(func(endpoints *webhook.EndpointService) error {
		result, err := endpoints.Test(a.ctx, c.ID)
		if err != nil {
			return unknownEndpoint(err)
		}
		switch {
		case a.json:
			err = a.printJSON(view.NewDelivery(&result))
		case result.Outcome == webhook.Delivered:
			sayf(a.out, "Endpoint %d took the event: %d after %s.", c.ID, result.Status, age(result.Took))
		default:
			sayf(a.out, "Endpoint %d did not take the event: %s (after %s).", c.ID, table.Clean(result.Error), age(result.Took))
		}
		if err == nil && result.Outcome != webhook.Delivered {
			return errFound
		}
		return err
	})
}

// withEndpoints works with Postgres alone: events have nothing to do with Redis.
func (a *app) withEndpoints(do func(*webhook.EndpointService) error) error {
	return a.withPostgres(func(s *stores) error {
		return do(webhook.NewEndpointService(s.postgres.EndpointRegistry(), process.WebhookPolicy(s.cfg), s.cfg.Encryption))
	})
}

// unknownEndpoint is what to do about an endpoint that does not exist.
func unknownEndpoint(err error) error {
	return advise(err, pipeline.KindNotFound, "sluice endpoint ls shows them")
}
