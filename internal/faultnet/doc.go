// Package faultnet is a faulty network for tests and chaos runs: a proxy in front of a real Redis or Postgres that
// cuts, freezes, slows and loses replies on command, so that a test can cause what happens in production by chance
// only.
//
//	proxy, err := faultnet.Listen(server.URL())
//	defer proxy.Close()
//	client := connect(proxy.URL())
//	proxy.DropReplyTo("evalsha", 1) // the next script runs, and its reply is lost
//
// The proxy reads the protocol as it forwards, just enough to know which reply belongs to which request. That makes a
// lost reply exact: earlier replies arrive, the server has done what was requested, and the connection ends.
//
// A watcher (Watch) is called before a server sees a request and again before its client gets the reply, so that a test
// can do something at exactly that moment, such as killing the client.
//
// It understands what our clients speak: RESP2 and RESP3 without MONITOR, SUBSCRIBE and CLIENT REPLY, where a request
// has no reply or several, the Postgres protocol without TLS, and HTTP/1.1 without TLS and pipelining.
package faultnet
