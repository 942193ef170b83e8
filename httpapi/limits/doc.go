// Package limits keeps one client from using up what others need: so many requests in a time, so many connections.
// Everything in it is decided in this process, without a round trip: with several apis, a client may do that much at
// each of them.
//
// Begin with rate.go (how often), then limiter.go (who did how much), client_address.go (who that is) and
// connections.go. What a client is answered, package httpapi knows.
package limits
