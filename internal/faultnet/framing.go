package faultnet

// framing finds where messages end in one direction of one connection. Bytes come in pieces of any size.
type framing interface {
	// next reads on in the current message and returns how many of the bytes belong to it, and whether it ends there.
	next(data []byte) (n int, ended bool)
	// counts reports whether the message that begins with this byte takes part in the pairing of requests and replies.
	counts(first byte) bool
}
