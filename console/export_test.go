package console

import "sluice/pipeline/operator"

// Route is a route, for tests that look at all of them.
type Route struct {
	Pattern string
	Role    operator.Role
}

// Routes are all of them.
func Routes() []Route {
	var all []Route
	for _, rt := range (&console{}).routes() {
		all = append(all, Route{rt.pattern, rt.role})
	}
	return all
}

// Open is the role of routes that need nobody to be signed in.
const Open = open

// Next is where a sign-in leads to.
var Next = next

// SessionLife is how long one sign-in lasts.
const SessionLife = sessionLife
