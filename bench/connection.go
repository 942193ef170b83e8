package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"net"
	"strconv"
	"time"
)

// connection is one kept connection to the server, with the request ready in memory: only the buyer's id changes. It
// reads of an answer what it must: the status and where the body ends. A general client would cost as much CPU time
// as the server does, and on a small machine that is the server's.
type connection struct {
	conn     net.Conn
	reader   *bufio.Reader
	request  []byte
	ids      [][]byte // where the buyer's id stands in it
	seed     uint64
	buyer    uint64 // number of the next buyer
	step     uint64 // to the one after that
	status   int    // of the last answer
	statuses [600]int64
	micros   []uint32
}

func newConnection(conn net.Conn, f *load, index uint64) *connection {
	c := &connection{
		conn: conn, reader: bufio.NewReader(conn),
		seed: f.Seed, buyer: f.First + index, step: uint64(f.Connections),
		micros: make([]uint32, 0, 1<<14),
	}
	c.request = orderRequest(f)
	c.ids = placesOf(c.request, []byte(placeholderID))
	return c
}

// orderRequest is an order of anybody.
func orderRequest(f *load) []byte {
	const body = `{"quantity":1}`
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: sluice-bench\r\nX-User-Id: %s\r\n", f.Path, f.Addr,
		placeholderID)
	if f.Keys {
		fmt.Fprintf(&b, "Idempotency-Key: order-%s\r\n", placeholderID)
	}
	fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return b.Bytes()
}

// placesOf returns every place in text with what is looked for.
func placesOf(text, wanted []byte) [][]byte {
	var places [][]byte
	for at := 0; ; {
		next := bytes.Index(text[at:], wanted)
		if next < 0 {
			return places
		}
		at += next + len(wanted)
		places = append(places, text[at-len(wanted):at])
	}
}

// order sends one request and reads its answer.
func (c *connection) order() error {
	for _, place := range c.ids {
		writeBuyer(place, c.seed, c.buyer)
	}
	c.buyer += c.step
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	var err error
	c.status, err = readAnswer(c.reader)
	return err
}

func (c *connection) note(took time.Duration) {
	c.statuses[c.status]++
	c.micros = append(c.micros, uint32(min(took.Microseconds(), math.MaxUint32)))
}

// readAnswer reads an answer of a length that is known beforehand, and returns its status.
func readAnswer(r *bufio.Reader) (int, error) {
	status, err := readStatus(r)
	if err != nil {
		return 0, err
	}
	length := -1
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil || length < 0 {
				return 0, fmt.Errorf("an answer's Content-Length is %q", value)
			}
		}
	}
	if length < 0 {
		return 0, fmt.Errorf("an answer with status %d has no length", status)
	}
	_, err = r.Discard(length)
	return status, err
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
