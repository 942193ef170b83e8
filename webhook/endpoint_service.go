package webhook

import (
	"context"
	"time"

	"sluice/pipeline"
)

// EndpointStore stores endpoints. Every change by an operator is in the audit log with its actor.
type EndpointStore interface {
	Endpoints(ctx context.Context) ([]Endpoint, error)
	Endpoint(ctx context.Context, id int64) (Endpoint, error) // with its secret
	AddEndpoint(ctx context.Context, actor, url, secret string, types []string) (Endpoint, error)
	EnableEndpoint(ctx context.Context, actor string, id int64, skipNext bool) (Endpoint, error)
	DisableEndpoint(ctx context.Context, actor string, id int64) (Endpoint, error)
	RemoveEndpoint(ctx context.Context, actor string, id int64) error
	HistoryStore
}

// EndpointService is what operators do with endpoints, on the command line and over HTTP alike.
type EndpointService struct {
	EndpointStore
	policy Policy
	sender *sender
}

// NewEndpointService returns a service that registers what a policy allows.
func NewEndpointService(store EndpointStore, policy Policy) *EndpointService {
	return &EndpointService{EndpointStore: store, policy: policy, sender: newSender(policy)}
}

// Add registers an endpoint for some types of events, or for all. The secret in its result is shown only this once.
// Errors: KindInvalid, KindConflict (the URL is registered, or there are MaxEndpoints), KindUnavailable.
func (d *EndpointService) Add(ctx context.Context, actor, url string, types []string) (Endpoint, error) {
	if err := pipeline.ValidateActor(actor); err != nil {
		return Endpoint{}, err
	}
	if err := d.policy.CheckURL(url); err != nil {
		return Endpoint{}, err
	}
	if err := ValidateTypes(types); err != nil {
		return Endpoint{}, err
	}
	return d.AddEndpoint(ctx, actor, url, NewSecret(), types)
}

// Test sends an event of TypeTest to an endpoint at once, even to a disabled one, and returns the outcome. It changes
// nothing. Errors: KindNotFound, KindUnavailable; a delivery that fails is a result.
func (d *EndpointService) Test(ctx context.Context, id int64) (Result, error) {
	e, err := d.Endpoint(ctx, id)
	if err != nil {
		return Result{}, err
	}
	defer d.sender.close()
	event := testEvent(time.Now())
	return d.sender.send(ctx, &e, &event), nil
}
