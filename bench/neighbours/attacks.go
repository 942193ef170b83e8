package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// attackerAddress is where attacks come from; honest buyers come from 127.0.0.1.
const attackerAddress = "127.0.0.2"

const (
	bigBody = 60 << 10
	// slowBodyBytes is what an order's body may have.
	slowBodyBytes = 4000
	idleFactor    = 20 // an attack that sends nothing has so many times the connections
	redialWait    = time.Millisecond
)

// target is what a child attacks.
type target struct {
	Kind, URL, Admin string
	Connections      int
}

// kind is one way to attack.
type kind struct {
	name  string
	admin bool // the operations side
	idle  bool // sends little, over many connections

	// request is the n-th request of a connection.
	request func(connection, n int) string
	// slow is the time between two bytes; 0: all at once.
	slow     time.Duration
	slowBody bool // the headers come at once
}

var kinds = []kind{
	{name: "sold-out orders", request: orders(soldOutSale, "")},
	{name: "orders", request: orders(honestSale, "")},
	{name: "waiting orders", request: orders(honestSale, "Prefer: wait=30\r\n")},
	{name: "one buyer", request: func(int, int) string { return order(honestSale, "mallory", "", "") }},
	{name: "bad bodies", request: func(c, n int) string {
		return order(honestSale, buyer(c, n), "", strings.Repeat("[", bigBody))
	}},
	{name: "small bad bodies", request: func(c, n int) string { return order(honestSale, buyer(c, n), "", "{]") }},
	{name: "forged webhooks", request: func(int, int) string {
		return post("/v1/webhooks/payments", fmt.Sprintf("webhook-id: m\r\nwebhook-timestamp: %d\r\nwebhook-signature: v1,AAAA\r\n",
			time.Now().Unix()), strings.Repeat("x", bigBody))
	}},
	{name: "streams", request: func(c, n int) string {
		return "GET /v1/sales/" + honestSale + "/orders/01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f/events HTTP/1.1\r\nHost: localhost\r\n" +
			"X-User-Id: " + buyer(c, n) + "\r\n\r\n"
	}},
	{name: "guessed tokens", admin: true, request: func(c, n int) string {
		return fmt.Sprintf("GET /admin/v1/sales HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %d-%d\r\n\r\n", c, n)
	}},
	{name: "health checks", request: func(int, int) string { return "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n" }},
	{name: "no HTTP", request: func(int, int) string { return "hello\r\n\r\n" }},
	{name: "slow headers", slow: time.Second, request: orders(honestSale, "")},
	{name: "slow bodies", slow: time.Second, slowBody: true, request: func(int, int) string {
		return "POST /v1/sales/" + honestSale + "/orders HTTP/1.1\r\nHost: localhost\r\nX-User-Id: mallory\r\n" +
			"Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(slowBodyBytes) + "\r\n\r\n"
	}},
	{name: "idle connections", idle: true, request: func(int, int) string { return "" }},
}

func buyer(connection, n int) string {
	return fmt.Sprintf("mallory-%d-%d-%d", os.Getpid(), connection, n)
}

func orders(sale, header string) func(int, int) string {
	return func(c, n int) string { return order(sale, buyer(c, n), header, "") }
}

func order(sale, user, header, body string) string {
	return post("/v1/sales/"+sale+"/orders", "X-User-Id: "+user+"\r\nContent-Type: application/json\r\n"+header, body)
}

func post(path, header, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s", path, header, len(body), body)
}

// tally counts answers by status; 0: the connection was closed without one.
type tally struct {
	mu     sync.Mutex // protects counts
	counts map[int]int64
}

func (t *tally) add(status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[status]++
}

// runAttack attacks until the context ends, and prints the answers.
func runAttack(ctx context.Context, text string) {
	var to target
	if err := json.Unmarshal([]byte(text), &to); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.name == to.Kind })
	if at < 0 {
		fmt.Fprintf(os.Stderr, "%q is no attack\n", to.Kind)
		os.Exit(2)
	}
	k, address, connections := kinds[at], to.URL, to.Connections
	if k.admin {
		address = to.Admin
	}
	if k.idle {
		connections *= idleFactor
	}
	u, err := url.Parse(address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	began := time.Now()
	answers := &tally{counts: map[int]int64{}}
	var open atomic.Int64
	var running sync.WaitGroup
	for c := range connections {
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				open.Add(1)
				n = k.attack(ctx, u.Host, c, n, answers)
				open.Add(-1)
				time.Sleep(redialWait)
			}
		})
	}
	<-ctx.Done()
	seconds := time.Since(began).Seconds()
	answers.mu.Lock()
	for _, status := range slices.Sorted(maps.Keys(answers.counts)) {
		name := fmt.Sprint(status)
		if status == 0 {
			name = "closed"
		}
		fmt.Fprintf(os.Stdout, "%s: %.0f  ", name, float64(answers.counts[status])/seconds)
	}
	answers.mu.Unlock()
}

// attack uses one connection for as long as it lasts, and returns the number of its last request.
func (k *kind) attack(ctx context.Context, host string, c, n int, answers *tally) int {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(attackerAddress)}, Timeout: callLimit}
	conn, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		answers.add(0)
		return n
	}
	defer func() { _ = conn.Close() }()
	end := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer end()
	reader := bufio.NewReaderSize(conn, 8<<10)
	for ; ctx.Err() == nil; n++ {
		if !k.send(conn, k.request(c, n)) {
			answers.add(0)
			return n
		}
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			answers.add(0)
			return n
		}
		answers.add(answer.StatusCode)
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.Close {
			return n
		}
	}
	return n
}

// send writes a request, all at once or byte by byte; of a slow body it never sends the end.
func (k *kind) send(conn net.Conn, text string) bool {
	if k.slow == 0 {
		_, err := io.WriteString(conn, text)
		return err == nil
	}
	if k.slowBody {
		if _, err := io.WriteString(conn, text); err != nil {
			return false
		}
		text = strings.Repeat(" ", slowBodyBytes)
	}
	for i := range len(text) {
		if _, err := conn.Write([]byte{text[i]}); err != nil {
			return false
		}
		time.Sleep(k.slow)
	}
	return true
}
