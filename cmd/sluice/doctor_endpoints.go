package main

import (
	"context"
	"fmt"
)

// endpointSecrets checks that what is stored of the secrets of endpoints can be used, and is encrypted if there are
// keys.
func (d *doctor) endpointSecrets(ctx context.Context, pg *postgres) {
	const check = "endpoint secrets"
	stored, err := pg.endpointSecrets(ctx)
	if err != nil {
		d.failed(check, err, "look at the log of Postgres")
		return
	}
	old, waits := 0, ""
	for _, s := range stored {
		current, err := d.cfg.Encryption.Inspect(s.secret, s.id, s.url)
		if err != nil {
			d.note(false, check, fmt.Sprintf("endpoint %d: %s", s.id, sentence(err)),
				"set ENCRYPTION_KEYS as the workers have it; if the key is lost: sluice endpoint rotate")
			return
		}
		if !current {
			old++
		}
		if s.withheld != "" {
			waits = fmt.Sprintf("endpoint %d gets no events, because of a worker: %s", s.id, s.withheld)
		}
	}
	switch {
	case len(stored) == 0:
		d.note(true, check, "there are no endpoints", "")
	case waits != "":
		d.note(false, check, waits, "set ENCRYPTION_KEYS of every worker as it is here, and restart it")
	case d.cfg.Encryption == nil:
		d.note(true, check, fmt.Sprintf("%d, stored as they are: ENCRYPTION_KEYS is not set", len(stored)), "")
	default:
		d.note(old == 0, check, fmt.Sprintf("%d, %d of them not encrypted under the first key", len(stored), old),
			"run: sluice endpoint encrypt")
	}
}
