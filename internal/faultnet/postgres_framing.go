package faultnet

import "encoding/binary"

const (
	pgLength = 4 // bytes of a message's length, which counts itself
	// The messages that the server answers with one ReadyForQuery each: a request ends with one of them.
	pgQuery, pgSync, pgFunctionCall = 'Q', 'S', 'F'
	// pgReady ends a reply.
	pgReady = 'Z'
)

// pgFraming parses one direction of the Postgres protocol, version 3. A request is what a client sends up to where it
// waits for the server to be ready again; the first one is the startup message, which alone has no type byte.
type pgFraming struct {
	ends    func(kind byte) bool
	untyped bool   // the startup message is still to come
	head    []byte // type and length of the current message so far
	body    int    // its bytes still to come
}

func pgFramings() (requests, replies framing) {
	ends := func(kind byte) bool { return kind == pgQuery || kind == pgSync || kind == pgFunctionCall || kind == 0 }
	return &pgFraming{ends: ends, untyped: true}, &pgFraming{ends: func(kind byte) bool { return kind == pgReady }}
}

func (f *pgFraming) counts(byte) bool { return true }

func (f *pgFraming) next(data []byte) (n int, ended bool) {
	for n < len(data) {
		if f.body > 0 {
			some := min(f.body, len(data)-n)
			f.body -= some
			n += some
		} else {
			f.head = append(f.head, data[n])
			n++
			if !f.begun() {
				continue
			}
		}
		if f.body == 0 && f.finish() {
			return n, true
		}
	}
	return n, false
}

// begun reports whether the head is complete, and then sets the size of the body.
func (f *pgFraming) begun() bool {
	size := f.size()
	if len(f.head) < size {
		return false
	}
	f.body = max(int(binary.BigEndian.Uint32(f.head[size-pgLength:]))-pgLength, 0)
	return true
}

func (f *pgFraming) size() int {
	if f.untyped {
		return pgLength
	}
	return 1 + pgLength
}

// finish ends the current message and reports whether a request or reply ends with it.
func (f *pgFraming) finish() bool {
	var kind byte
	if !f.untyped {
		kind = f.head[0]
	}
	f.untyped, f.head = false, f.head[:0]
	return f.ends(kind)
}
