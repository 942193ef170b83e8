package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/httpapi"
	"sluice/httpapi/limits"
)

// attacker is another address of the loopback network than that of the test's honest clients.
const attacker = "127.0.0.2"

// dialAs connects from an address of the loopback network.
func (r *rig) dialAs(address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: answerLimit}
	return d.DialContext(r.t.Context(), "tcp", r.address)
}

// TestServesOthersUnderAttack: one client keeps as many connections as it may, and wastes each in another way;
// everybody else is served, and the attacker never has more.
func TestServesOthersUnderAttack(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("another system's loopback network has one address")
	}
	const most = 40
	r := newRig(t, rigOptions{connections: &limits.Connections{
		PerClient: limits.NewConcurrent[netip.Prefix]("client-connections", most),
		Total:     limits.NewConcurrent[string]("connections", 200), Addresses: limits.NewAddresses(nil),
	}})
	r.create(newSale("drop-1", 1000))
	post := "POST /v1/sales/drop-1/orders HTTP/1.1\r\nHost: x\r\nX-User-Id: mallory\r\nContent-Type: application/json\r\n"
	attacks := []string{
		"",                                     // says nothing
		post,                                   // headers without an end
		post + "Content-Length: 4000\r\n\r\n{", // a body without an end
		post + "Transfer-Encoding: chunked\r\n\r\nfff\r\n{",
		post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
		post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		post + "Content-Length: 0\r\n\r\n" + strings.Repeat(post+"Content-Length: 0\r\n\r\n", 100), // pipelined
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	for n := range 2 * most {
		running.Go(func() {
			for ctx.Err() == nil {
				conn, err := r.dialAs(attacker)
				if err != nil {
					continue
				}
				end := context.AfterFunc(ctx, func() { _ = conn.Close() })
				_, _ = io.WriteString(conn, attacks[n%len(attacks)]) // until it is reset
				_, _ = io.Copy(io.Discard, conn)
				end()
				_ = conn.Close()
				time.Sleep(time.Millisecond)
			}
		})
	}
	refused := func() float64 { return testutil.ToFloat64(r.limitedBy("client-connections")) }
	for began := time.Now(); refused() == 0 && time.Since(began) < answerLimit; {
		time.Sleep(time.Millisecond)
	}
	for n := range 100 {
		r.expect(order("drop-1", fmt.Sprintf("honest-%d", n), ""), 202, "")
		r.expect(get("/readyz", ""), 200, "")
	}
	if refused() == 0 {
		t.Error("the attacker was never refused a connection")
	}
}

// A request within a request (CL/TE) is never taken for one.
func TestSmuggledRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 10))
	inner := "POST /v1/sales/drop-1/orders HTTP/1.1\r\nHost: x\r\nX-User-Id: victim\r\nContent-Length: 0\r\n\r\n"
	post := "POST /v1/sales/drop-1/orders HTTP/1.1\r\nHost: x\r\nX-User-Id: mallory\r\nContent-Type: application/json\r\n"
	for name, text := range map[string]string{
		"CL.TE":           post + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", len(inner)+5) + inner,
		"TE.TE":           post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
		"TE with a space": post + "Transfer-Encoding : chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n" + inner,
		"folded TE":       post + "Transfer-Encoding:\r\n chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n" + inner,
		"CL twice":        post + fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n\r\n", len(inner)) + inner,
		"CL with a sign":  post + fmt.Sprintf("Content-Length: +%d\r\n\r\n", len(inner)) + inner,
		"chunk of excess": post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + inner,
	} {
		conn, err := r.dialAs("127.0.0.1")
		must(t, err)
		must(t, conn.SetDeadline(time.Now().Add(answerLimit)))
		_, err = io.WriteString(conn, text)
		must(t, err)
		reader := bufio.NewReader(conn)
		answer, err := http.ReadResponse(reader, nil)
		must(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		must(t, err)
		_ = answer.Body.Close()
		if _, err := reader.ReadByte(); err == nil {
			t.Errorf("%s: the request within was answered", name)
		}
		_ = conn.Close()
		r.expect(get("/v1/sales/drop-1/orders/mine", "victim"), 404, "unknown-order")
	}
}

// Ranges and encodings that nobody needs change nothing.
func TestAbsurdHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 10))
	whole := r.expect(get("/v1/sales", ""), 200, "")
	for name, value := range map[string]string{
		"Range":           "bytes=" + strings.Repeat("0-0,", 2000) + "0-0",
		"Accept-Encoding": strings.Repeat("gzip;q=0.1,", 1000) + "br",
		"Accept":          strings.Repeat("text/html;q=0.1,", 800) + "*/*",
		"If-None-Match":   strings.Repeat(`"x",`, 3000) + `"y"`,
		"Expect":          "100-continue",
	} {
		if got := r.expect(get("/v1/sales", "").with(name, value), 200, ""); len(got.body) != len(whole.body) {
			t.Errorf("%s: got %d bytes, want %d", name, len(got.body), len(whole.body))
		}
	}
}

// A flood of the same answers fills neither the log nor the metrics; each line names the client.
func TestTheLogInAFlood(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 10))
	const flood = 2000
	began := time.Now()
	for n := range flood {
		r.expect(order("drop-1", "", ""), 401, "unauthenticated")
		if n == 0 {
			r.expect(get("/v1/sales/none", ""), 404, "unknown-sale")
		}
	}
	seconds := int(time.Since(began)/time.Second) + 2
	logs := r.logs.String()
	lines := strings.Count(logs, `"code":"unauthenticated"`)
	if lines < httpapi.LogPerWindow || lines > seconds*httpapi.LogPerWindow {
		t.Errorf("%d lines about %d answers in %d s", lines, flood, seconds)
	}
	if !strings.Contains(logs, `"code":"unknown-sale"`) {
		t.Error("the one answer of another kind is not logged")
	}
	if !strings.Contains(logs, `"client":"127.0.0.1"`) {
		t.Errorf("no line names the client:\n%.500s", logs)
	}
	for began := time.Now(); !strings.Contains(r.logs.String(), `"unlogged":`); {
		if time.Since(began) > answerLimit {
			t.Fatal("it is never said how many lines were left out")
		}
		r.expect(get("/v1/sales/none", ""), 404, "unknown-sale")
	}
}
