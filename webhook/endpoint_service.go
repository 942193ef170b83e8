package webhook

import (
	"context"
	"errors"
	"time"

	"sluice/pipeline"
)

// MaxSecretOverlap is for how long at most events are signed with two secrets: a receiver that has not changed after a
// week won't.
const MaxSecretOverlap = 7 * 24 * time.Hour

// EndpointStore stores endpoints. Every change by an operator is in the audit log with its actor.
type EndpointStore interface {
	Endpoints(ctx context.Context) ([]Endpoint, error)
	Endpoint(ctx context.Context, id int64) (Endpoint, error) // with its secrets
	// AddEndpoint stores what seal makes of the new id as the secret.
	AddEndpoint(ctx context.Context, actor, url string, seal func(id int64) string, types []string) (Endpoint, error)
	EnableEndpoint(ctx context.Context, actor string, id int64, skipNext bool) (Endpoint, error)
	DisableEndpoint(ctx context.Context, actor string, id int64) (Endpoint, error)
	RemoveEndpoint(ctx context.Context, actor string, id int64) error
	// RotateSecret gives an endpoint another secret, and keeps the one before for a time.
	RotateSecret(ctx context.Context, actor string, id int64, secret string, keep time.Duration) (Endpoint, error)
	// ReplaceSecrets stores the same secrets in another form. It returns false when they were changed meanwhile.
	ReplaceSecrets(ctx context.Context, actor string, before, after *Endpoint) (bool, error)
	HistoryStore
}

// EndpointService is what operators do with endpoints, on the command line and over HTTP alike.
type EndpointService struct {
	EndpointStore
	policy Policy
	keys   *Keyring
	sender *sender
}

// NewEndpointService returns a service that registers what a policy allows, and stores secrets under keys.
func NewEndpointService(store EndpointStore, policy Policy, keys *Keyring) *EndpointService {
	return &EndpointService{EndpointStore: store, policy: policy, keys: keys, sender: newSender(policy, keys)}
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
	if err := d.refusePlain(ctx); err != nil {
		return Endpoint{}, err
	}
	secret := NewSecret()
	e, err := d.AddEndpoint(ctx, actor, url, func(id int64) string { return d.keys.encrypt(secret, id, url) }, types)
	return d.shown(e, err)
}

// refusePlain refuses to store a secret as it is where others are encrypted: this program has not been given the keys.
func (d *EndpointService) refusePlain(ctx context.Context) error {
	if d.keys != nil {
		return nil
	}
	list, err := d.Endpoints(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		e, err := d.Endpoint(ctx, list[i].ID)
		if err == nil && isEncrypted(e.Secret) {
			return pipeline.Errorf(pipeline.KindInvalid,
				"the secrets of endpoints are encrypted here: set ENCRYPTION_KEYS as the other programs have it")
		}
	}
	return nil
}

// shown is an endpoint with its secret as the receiver needs it.
func (d *EndpointService) shown(e Endpoint, err error) (Endpoint, error) {
	if err != nil {
		return Endpoint{}, err
	}
	e.PreviousSecret = ""
	e.Secret, err = d.keys.decrypt(e.Secret, e.ID, e.URL)
	return e, err
}

// Rotate gives an endpoint another secret, which is shown only this once. For the time of keep, from 0 to
// MaxSecretOverlap, events are signed with both, so that the receiver can change to the new one when it suits. Errors:
// KindInvalid, KindNotFound, KindConflict (the one before counts still, and a third would put out the one that the
// receiver has), KindUnavailable.
func (d *EndpointService) Rotate(ctx context.Context, actor string, id int64, keep time.Duration) (Endpoint, error) {
	if err := pipeline.ValidateActor(actor); err != nil {
		return Endpoint{}, err
	}
	if keep < 0 || keep > MaxSecretOverlap {
		return Endpoint{}, pipeline.Errorf(pipeline.KindInvalid,
			"the secret before can be kept for %s: use 0s to %s", keep, MaxSecretOverlap)
	}
	e, err := d.Endpoint(ctx, id)
	if err != nil {
		return Endpoint{}, err
	}
	if err := d.refusePlain(ctx); err != nil {
		return Endpoint{}, err
	}
	e, err = d.RotateSecret(ctx, actor, id, d.keys.encrypt(NewSecret(), id, e.URL), keep)
	return d.shown(e, err)
}

// Encrypt stores every secret under the first key that is not stored under it yet, and returns how many endpoints it
// changed. Errors: KindInvalid (there are no keys, or some secrets can't be decrypted; the others are done),
// KindUnavailable.
func (d *EndpointService) Encrypt(ctx context.Context, actor string) (changed int, err error) {
	if d.keys == nil {
		return 0, pipeline.Errorf(pipeline.KindInvalid, "set ENCRYPTION_KEYS: there is no key to encrypt secrets under")
	}
	list, err := d.Endpoints(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for i := range list {
		done, err := d.encryptOne(ctx, actor, list[i].ID)
		errs = append(errs, err) // the others are encrypted all the same
		changed += done
	}
	return changed, errors.Join(errs...)
}

// encryptOne returns 1 when it changed the endpoint.
func (d *EndpointService) encryptOne(ctx context.Context, actor string, id int64) (int, error) {
	before, err := d.Endpoint(ctx, id)
	if pipeline.KindOf(err) == pipeline.KindNotFound {
		return 0, nil // removed meanwhile
	}
	if err != nil {
		return 0, err
	}
	if d.keys.current(before.Secret) && d.keys.current(before.PreviousSecret) {
		return 0, nil
	}
	after := before
	for _, stored := range []*string{&after.Secret, &after.PreviousSecret} {
		secret, err := d.keys.decrypt(*stored, id, before.URL)
		if err != nil {
			return 0, pipeline.Errorf(pipeline.KindInvalid, "endpoint %d: %v", id, err)
		}
		*stored = d.keys.encrypt(secret, id, before.URL)
	}
	replaced, err := d.ReplaceSecrets(ctx, actor, &before, &after)
	switch {
	case err != nil:
		return 0, err
	case !replaced:
		return 0, pipeline.Errorf(pipeline.KindConflict, "the secret of endpoint %d was changed at the same time: try again", id)
	}
	return 1, nil
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
