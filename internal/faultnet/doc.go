// Package faultnet is a bad network for tests and chaos runs: a proxy before a real Redis or Postgres that cuts, freezes,
// slows and loses replies on command, so that a test can bring about what production only meets by accident.
//
//	proxy, err := faultnet.Listen(server.URL())
//	defer proxy.Close()
//	client := connect(proxy.URL())
//	proxy.DropReplyTo("evalsha", 1) // the next script runs, and nobody hears of it
//
// The proxy reads the protocol as it passes, just so far that it knows which reply answers which request. That makes a
// lost reply exact: what came before it arrives, the server has done what it was asked, and the connection ends.
//
// A watcher (Watch) is called before a server sees a request and again before its client hears the reply, so that a test can
// do something at exactly that moment, such as killing the client.
//
// It understands what our clients speak: RESP2 and RESP3 without MONITOR, SUBSCRIBE and CLIENT REPLY, where a request
// has none or many replies, the Postgres protocol without TLS, and HTTP/1.1 without TLS and pipelining.
package faultnet
