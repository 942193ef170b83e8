package main

import (
	"fmt"
	"strings"

	"sluice/internal/programs"
)

// devBanner is what to try next, ready to be copied into another terminal.
func devBanner(c *programs.Stack, hasSale bool, token string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	sluice := programName()
	line("")
	line("Sluice is running, with %d workers. In another terminal:", len(c.Workers))
	line("")
	line("  export DATABASE_URL='%s' REDIS_URL='%s'", c.Config.DatabaseURL, c.Config.RedisURL)
	if !hasSale {
		line("  %s sale create --id %s --stock %d --max-quantity 2 --opens now --closes +24h", sluice, devSale, devSaleStock)
	}
	line("")
	line("  # order, as the buyer alice; again with the same key: the same answer; with another key: 409 already-ordered")
	line("  curl -i -X POST %s/v1/sales/%s/orders -H 'X-User-Id: alice' -H 'Idempotency-Key: a1' \\", c.API.URL(), devSale)
	line("       -H 'Content-Type: application/json' -d '{\"quantity\":1}'")
	line("  curl -s %s/v1/sales/%s/orders/mine -H 'X-User-Id: alice'", c.API.URL(), devSale)
	line("  curl -s %s/v1/sales", c.API.URL())
	line("")
	line("  %[1]s workers; %[1]s stream; %[1]s audit", sluice)
	line("")
	line("  API %s (docs at /docs), operations %s", c.API.URL(), c.API.AdminURL())
	line("  Console %s/console/, to be signed in with this token, which ends with these servers:", c.API.AdminURL())
	line("  %s", token)
	line("  Ctrl-C stops everything and removes it.")
	line("")
	return b.String()
}
