package loadgen

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// maxBody bounds an answer's body; real ones have a few hundred bytes.
const maxBody = 1 << 20

// answer is what is read of an answer: no more than is counted. A general client would cost as much CPU time as the
// server does, and on a small machine that is the server's.
type answer struct {
	status int
	code   string // of a problem; empty where there is none
	last   bool   // the server closes the connection after it
}

// header is what an answer's head says about its body.
type header struct {
	length  int // -1: not stated
	chunked bool
	last    bool
}

// readAnswer reads one answer, so that the next one can follow.
func readAnswer(r *bufio.Reader) (answer, error) {
	for {
		status, err := readStatus(r)
		if err != nil {
			return answer{}, err
		}
		h, err := readHeader(r)
		if err != nil {
			return answer{}, err
		}
		if status < http.StatusOK {
			continue // announces the answer proper
		}
		a := answer{status: status, last: h.last}
		if status == http.StatusNoContent || status == http.StatusNotModified {
			return a, nil
		}
		body, err := readBody(r, h, status >= http.StatusBadRequest)
		a.code = codeOf(body)
		return a, err
	}
}

// readStatus reads `HTTP/1.1 202 Accepted`.
func readStatus(r *bufio.Reader) (int, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	const before, after = len("HTTP/1.1 "), len("HTTP/1.1 202")
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) || len(line) < after {
		return 0, fmt.Errorf("an answer begins with %.40q", line)
	}
	status, err := strconv.Atoi(string(line[before:after]))
	if err != nil || status < 100 || status > 599 {
		return 0, fmt.Errorf("an answer begins with %.40q", line)
	}
	return status, nil
}

func readHeader(r *bufio.Reader) (header, error) {
	h := header{length: -1}
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return h, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return h, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if err := h.note(name, bytes.TrimSpace(value)); err != nil {
			return h, err
		}
	}
}

func (h *header) note(name, value []byte) (err error) {
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		if h.length, err = strconv.Atoi(string(value)); err != nil || h.length < 0 || h.length > maxBody {
			return fmt.Errorf("an answer's Content-Length is %.40q", value)
		}
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		if h.chunked = bytes.EqualFold(value, []byte("chunked")); !h.chunked {
			return fmt.Errorf("an answer's Transfer-Encoding is %.40q", value)
		}
	case bytes.EqualFold(name, []byte("Connection")):
		h.last = bytes.EqualFold(value, []byte("close"))
	}
	return nil
}

// readBody passes the body, and returns the beginning of one that is wanted. It is valid until the next read.
func readBody(r *bufio.Reader, h header, wanted bool) ([]byte, error) {
	if h.chunked {
		return readChunks(r, wanted)
	}
	if h.length < 0 {
		return nil, errors.New("an answer has no length")
	}
	var beginning []byte
	if wanted {
		var err error
		if beginning, err = r.Peek(min(h.length, r.Size())); err != nil {
			return nil, err
		}
	}
	code := bytes.Clone(beginning) // what follows may move it
	_, err := r.Discard(h.length)
	return code, err
}

// readChunks reads a chunked body. Only the first chunk is returned: a problem fits into it.
func readChunks(r *bufio.Reader, wanted bool) (first []byte, err error) {
	for total := 0; ; {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		digits, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(";"))
		size, err := strconv.ParseUint(string(digits), 16, 31)
		if total += int(size); err != nil || total > maxBody {
			return nil, fmt.Errorf("a chunk of an answer begins with %.40q", line)
		}
		if size == 0 {
			_, err = readHeader(r) // trailers, and the empty line that ends the body
			return first, err
		}
		wanted = wanted && first == nil
		part, err := readBody(r, header{length: int(size)}, wanted)
		if err != nil {
			return nil, err
		}
		if wanted {
			first = part
		}
		if _, err := r.ReadSlice('\n'); err != nil {
			return nil, err
		}
	}
}

// codeOf finds a problem's code, without decoding the rest of it.
func codeOf(body []byte) string {
	const member = `"code":`
	at := bytes.Index(body, []byte(member))
	if at < 0 {
		return ""
	}
	value := bytes.TrimLeft(body[at+len(member):], " ")
	if len(value) == 0 || value[0] != '"' {
		return ""
	}
	end := bytes.IndexByte(value[1:], '"')
	if end < 0 || end > maxCode {
		return ""
	}
	return string(value[1 : 1+end])
}

// maxCode bounds the code of a problem; the longest of ours has 25 bytes.
const maxCode = 64
