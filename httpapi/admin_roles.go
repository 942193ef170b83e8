package httpapi

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"sluice/pipeline/operator"
)

// adminRoles says what each route of the admin side needs, and admin.yaml says the same. A route that is not here stops
// the program at its start.
var adminRoles = func() map[string]operator.Role {
	roles := map[string]operator.Role{}
	for role, routes := range map[operator.Role]string{
		operator.Read: `
			GET dead-letters
			GET dead-letters/:id
			GET endpoints
			GET endpoints/:id
			GET erasures
			GET events
			GET log
			GET orders
			GET orders/export
			GET payments
			GET retention
			GET sales
			GET sales/:sale
			GET sales/:sale/audit`,
		operator.Operate: `
			POST dead-letters/:id/discard
			POST dead-letters/:id/replay
			POST endpoints/:id/disable
			POST endpoints/:id/enable
			POST endpoints/:id/replay
			POST endpoints/:id/resend
			POST endpoints/:id/test
			POST payments/:id/refunded
			POST sales
			PATCH sales/:sale
			POST sales/:sale/close
			POST sales/:sale/extend
			POST sales/:sale/orders/:order/extend
			POST sales/:sale/orders/:order/return
			POST sales/:sale/pause
			POST sales/:sale/reduce
			POST sales/:sale/reschedule
			POST sales/:sale/restock
			POST sales/:sale/resume`,
		// What events say, and of whom, leaves the house by an endpoint; a repair takes sales out of admission; what is
		// erased is gone.
		operator.Admin: `
			POST erasures
			POST endpoints
			DELETE endpoints/:id
			POST endpoints/:id/rotate
			POST sales/:sale/repair`,
	} {
		for _, route := range strings.Split(strings.TrimSpace(routes), "\n") {
			method, path, _ := strings.Cut(strings.TrimSpace(route), " ")
			roles[method+" "+adminRoot+path] = role
		}
	}
	for _, path := range []string{"", "cmdline", "profile", "symbol", "trace", ":name"} {
		roles["GET "+profilesRoot+path] = operator.Admin
	}
	return roles
}()

// roleOf returns what a route needs. A request that no route takes needs none but a token: it is answered 404 or 405.
func roleOf(method, path string) (needed operator.Role, routed bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	needed, routed = adminRoles[method+" "+path]
	return needed, routed
}

// requireRoles panics when a route has no role: it would be open to every token.
func requireRoles(e *echo.Echo) {
	for _, route := range e.Routes() {
		if _, stated := roleOf(route.Method, route.Path); !stated && !isOpen(route.Path) {
			panic("httpapi: no role is stated for " + route.Method + " " + route.Path)
		}
	}
}
