//go:build nodb

package testkit

import "context"

func migrate(context.Context, string) error { panic("built with -tags nodb") }
