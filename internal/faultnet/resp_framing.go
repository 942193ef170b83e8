package faultnet

import "strconv"

// respFraming parses RESP2 and RESP3. It keeps a count of the values that are still to come, not a tree of them.
type respFraming struct {
	missing int    // values until the message ends; 0 between messages
	bulk    int    // bytes of a bulk string still to come, with its line end
	line    []byte // the start of a value so far
}

func respFramings() (requests, replies framing) { return &respFraming{}, &respFraming{} }

// counts excludes RESP3 pushes, which a server sends without a request.
func (f *respFraming) counts(first byte) bool { return first != '>' }

func (f *respFraming) next(data []byte) (n int, ended bool) {
	if f.missing == 0 {
		f.missing = 1
	}
	for n < len(data) {
		if f.bulk > 0 {
			some := min(f.bulk, len(data)-n)
			f.bulk -= some
			n += some
			if f.bulk == 0 {
				f.missing--
			}
		} else {
			b := data[n]
			n++
			if f.line = append(f.line, b); b == '\n' {
				f.value(f.line)
				f.line = f.line[:0]
			}
		}
		if f.missing == 0 {
			return n, true
		}
	}
	return n, false
}

// value handles the line that begins a value. A value that is neither a bulk nor an aggregate ends with its line; so
// does a command typed by hand.
func (f *respFraming) value(line []byte) {
	size := 0
	if digits := len(line) - 2; digits > 1 {
		size, _ = strconv.Atoi(string(line[1:digits]))
	}
	switch line[0] {
	case '$', '=', '!':
		if size < 0 { // RESP2's null
			f.missing--
			return
		}
		f.bulk = size + len("\r\n")
	case '*', '~', '>':
		f.missing += max(size, 0) - 1
	case '%':
		f.missing += 2*max(size, 0) - 1
	case '|':
		f.missing += 2 * max(size, 0) // attributes: the value that they describe is still to come
	default:
		f.missing--
	}
}
