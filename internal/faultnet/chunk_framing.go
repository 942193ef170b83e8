package faultnet

// chunkFraming takes each chunk that arrives for a whole message. HTTP/1.1 is like that as our clients use it: no
// pipelining, and a small request and a small answer are each written at once. An answer that comes in two chunks loses
// the first one and the connection, which is a lost answer too.
type chunkFraming struct{}

func chunkFramings() (requests, replies framing) { return chunkFraming{}, chunkFraming{} }

func (chunkFraming) next(data []byte) (n int, ended bool) { return len(data), true }

func (chunkFraming) counts(byte) bool { return true }
