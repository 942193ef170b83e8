package db

import "context"

// StreamSecret returns the secret from which the apis of this installation derive the key that signs the URLs of event
// streams. Errors: KindUnavailable.
func (s *Store) StreamSecret(ctx context.Context) ([]byte, error) {
	return queryValue[[]byte](ctx, s, "secret of event streams", `select secret from stream_key`)
}
