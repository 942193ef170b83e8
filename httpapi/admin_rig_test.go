package httpapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/httpapi"
	"sluice/httpapi/auth"
	"sluice/httpapi/limits"
	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/operator"
	"sluice/webhook"
)

const adminToken = "a-secret-of-32-characters-or-more"

// adminRig is a whole admin side on a port of its own, beside the public side over the same stores.
type adminRig struct {
	*rig
	public   *rig
	postgres *faultnet.Proxy // through which the stores' calls go
}

func newAdminRig(t *testing.T, c *contract, token string) *adminRig {
	t.Helper()
	proxy, err := faultnet.Listen(testkit.Database(t))
	must(t, err)
	t.Cleanup(func() { must(t, proxy.Close()) })
	public := newRig(t, rigOptions{databaseURL: proxy.URL()})
	log := slog.New(slog.NewJSONHandler(public.logs, nil))
	r := *public
	r.contract = c
	if r.contract == nil {
		r.contract = loadDocument(t, httpapi.AdminContract)
	}
	parts := r.parts()
	parts.Log = log
	r.serve(httpapi.NewAdmin(httpapi.AdminDeps{
		Store: r.store, Replayer: parts.Replayer(),
		Payments: parts.Payments(), Returner: parts.Returner(), Extender: parts.Extender(),
		Publisher: r.publisher, Stock: parts.Stock(), Auditor: parts.Auditor(),
		Repairer: parts.Repairer(),
		Endpoints: webhook.NewEndpointService(r.store.EndpointRegistry(),
			webhook.Policy{AllowPrivate: true}, nil), Requests: parts.Requests(), Log: log, Metrics: r.registry,
		Entry: r.entry,
		Operators: auth.NewOperators(operator.NewKeyring(r.store.OperatorTokens(), token),
			limits.NewAddresses(nil).Client, r.registry),
	}), nil)
	return &adminRig{&r, public, proxy}
}

// ask is a call of the admin side with the token. A body of "" means no body at all.
func ask(method, path, body string) call {
	c := call{method: method, path: "/admin/v1/" + path, body: body}.with("Authorization", "Bearer "+adminToken)
	if body != "" {
		c = c.with("Content-Type", "application/json")
	}
	return c
}

// as is the header Authorization of an operator with a name, who may do everything.
func (r *adminRig) as(name string) string { return r.holding(name, operator.Admin, time.Hour) }

// holding is the header Authorization with a new token. A life that is over makes one that has expired.
func (r *adminRig) holding(name string, role operator.Role, life time.Duration) string {
	r.t.Helper()
	token, text, err := operator.New(name, role, time.Now().Add(life), "cli:test")
	must(r.t, err)
	conn, err := pgx.Connect(r.t.Context(), r.database)
	must(r.t, err)
	defer func() { must(r.t, conn.Close(context.WithoutCancel(r.t.Context()))) }()
	_, err = conn.Exec(r.t.Context(), `
		insert into operator_tokens (id, name, role, hash, created_by, created_at, expires_at)
		values ($1, $2, $3, $4, $5, now() - interval '1 day', $6)`,
		token.ID, token.Name, token.Role, token.Hash[:], token.CreatedBy, token.ExpiresAt)
	must(r.t, err)
	return "Bearer " + text
}

func post(path, body string) call { return ask(http.MethodPost, path, body) }

// bury makes a dead letter of foreign fields, and returns its id.
func (r *adminRig) bury(fields ...string) string {
	r.t.Helper()
	payload := map[string]any{}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		payload[name] = value
	}
	sale, _ := payload["s"].(string)
	before := r.letters()
	must(r.t, r.store.BuryEvent(r.t.Context(), deadletter.Message{
		EntryID: fmt.Sprintf("1-%d", len(before)+1), SaleID: sale, Payload: payload, Reason: deadletter.Undecodable,
	}, nil))
	after := r.letters()
	return fmt.Sprint(after[len(after)-1].ID)
}

// letters are all letters, resolved or not.
func (r *adminRig) letters() []deadletter.Letter {
	r.t.Helper()
	all, err := r.store.Letters(r.t.Context(), deadletter.Filter{All: true})
	must(r.t, err)
	return all
}

// stored is a sale as Postgres defines it.
func (r *adminRig) stored(id string) *pipeline.Sale {
	r.t.Helper()
	sale, err := r.store.Sale(r.t.Context(), id)
	must(r.t, err)
	return sale
}
