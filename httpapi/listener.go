package httpapi

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// Listener turns the refusals of net/http itself into problem documents. Some requests reach no handler (a control
// character in a header, headers that are too large, no Host): net/http answers them in plain text, and the connection
// is the only place to change that. Everything else passes through untouched.
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{c}, nil
}

// conn is stateless: net/http writes a refusal in one call, and nothing else looks like one.
type conn struct{ net.Conn }

func (c conn) Write(b []byte) (int, error) {
	refusal := refusalIn(b)
	if refusal == nil {
		return c.Conn.Write(b)
	}
	if _, err := c.Conn.Write(refusal); err != nil {
		return 0, err
	}
	return len(b), nil
}

// CloseWrite lets net/http close the connection in the order that gets a refusal to the client.
func (c conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// plainRefusal is what follows the status line of net/http's own refusals, and of none of our answers: those have
// a Date, and are JSON or HTML.
var plainRefusal = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// refusalIn returns the problem document that replaces a refusal of net/http, or nil when b is none.
func refusalIn(b []byte) []byte {
	const protocol = "HTTP/1.1 "
	line, text, found := bytes.Cut(b[:min(len(b), 512)], plainRefusal)
	if !found || !bytes.HasPrefix(line, []byte(protocol)) || bytes.ContainsRune(line, '\n') {
		return nil
	}
	p := newProblem(codeInvalidRequest,
		"the request can't be read: its first line or a header is malformed or has a control character")
	if bytes.HasPrefix(line[len(protocol):], []byte("431 ")) {
		p = newProblem(codeHeadersTooLarge, fmt.Sprintf("request line and headers exceed %d bytes", maxHeaderBytes))
	} else if _, reason, ok := strings.Cut(string(text), ": "); ok {
		p.Detail = "the request can't be read: " + reason
	}
	if p.Code == codeInvalidRequest {
		p.Errors = []fieldError{{"request", p.Detail}}
	}
	p.RequestID = rand.Text()
	return p.raw()
}

// raw is the whole answer as bytes, for where there is no ResponseWriter.
func (p *problem) raw() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		return nil
	}
	return fmt.Appendf(nil,
		"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s: %s\r\nConnection: close\r\n\r\n%s",
		p.Status, http.StatusText(p.Status), problemType[0], len(body), headerRequestID, p.RequestID, body)
}
