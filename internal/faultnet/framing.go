package faultnet

// framings returns new framings of both directions of a connection.
type framings func() (requests, replies framing)

// framing finds the ends of messages in one direction of one connection. Bytes come in chunks of any size.
type framing interface {
	// next continues the current message and returns how many of the bytes belong to it, and whether it ends there.
	next(data []byte) (n int, ended bool)
	// counts reports whether the message that begins with this byte takes part in the pairing of requests and replies.
	counts(first byte) bool
}
