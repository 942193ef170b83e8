// Package auth says who sends a request. It knows HTTP's headers and connections, and nothing of routes.
//
// Buyers are identified in one of three ways (AUTH_MODE): Dev believes a header, Proxy believes a header of a proxy
// that it knows, and Tokens verifies a JSON Web Token. docs/security.md is the guide, docs/decisions/0033 the reasons.
//
// Read refused.go (what is answered), dev.go and proxy.go (headers), then the way of a token: bearer.go (out of its
// header), tokens.go (the whole way), verified.go (those seen before), key_set.go (which key and algorithm), claims.go
// (what it says), jwks.go and jwks_fetch.go (where keys come from).
package auth
