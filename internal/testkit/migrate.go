//go:build !nodb

package testkit

import (
	"context"

	"sluice/db"
)

func migrate(ctx context.Context, url string) error { return db.Migrate(ctx, url) }
