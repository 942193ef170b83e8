package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// hanging is how many requests of each form hang at once: nearly as many as an api in 512 MB has connections for.
const hanging = 4000

// unfinished are requests of which the last bytes do not come.
func unfinished(saleID string) map[string]string {
	const hook = "POST /v1/webhooks/payments HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
		"webhook-id: evt_1\r\nwebhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=\r\nwebhook-timestamp: %d\r\n" +
		"Content-Length: 65536\r\n\r\n%s"
	return map[string]string{
		"headers": "GET /readyz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 15<<10),
		"body of an order": fmt.Sprintf("POST /v1/sales/%s/orders HTTP/1.1\r\nHost: localhost\r\nX-User-Id: eve\r\n"+
			"Content-Type: application/json\r\nContent-Length: 4096\r\n\r\n%s", saleID, strings.Repeat(" ", 4090)),
		"body of a webhook": fmt.Sprintf(hook, time.Now().Unix(), strings.Repeat(" ", 65_400)),
	}
}

// TestUnfinishedRequestsAreBoundedInMemory: thousands of clients hold back the last bytes of what they send. The api's
// memory stays within its bound, and it goes on to serve buyers and operators.
func TestUnfinishedRequestsAreBoundedInMemory(t *testing.T) {
	s := newSite(t, 100, "PAYMENT_WEBHOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if s.memory(t).peak == 0 {
		t.Skip("this system does not tell what a process takes")
	}
	for form, request := range unfinished(s.sale.ID) {
		began := s.memory(t)
		conns := make([]net.Conn, 0, hanging)
		for range hanging {
			conn, err := net.DialTimeout("tcp", s.address, pushLimit)
			must(t, err)
			conns = append(conns, conn)
			must(t, conn.SetWriteDeadline(time.Now().Add(pushLimit)))
			_, _ = io.WriteString(conn, request) // the api may have refused it before its end
		}
		s.buy(t, "honest-"+form[:4])
		at := s.memory(t)
		t.Logf("%s: resident memory in MB: %d before, %d with %d requests, %d at most", form, began.now, at.now, hanging, at.peak)
		for _, conn := range conns {
			_ = conn.Close()
		}
		if at.peak > mostResident {
			t.Errorf("%s: the api took %d MB, want at most %d", form, at.peak, mostResident)
		}
	}
}

// buy has an honest buyer order over a connection of its own.
func (s *site) buy(t *testing.T, buyer string) {
	t.Helper()
	testkit.Eventually(t, pushLimit, "an honest buyer's order", func() bool {
		conn, err := net.DialTimeout("tcp", s.address, pushLimit)
		must(t, err)
		defer conn.Close()
		must(t, conn.SetDeadline(time.Now().Add(pushLimit)))
		_, err = fmt.Fprintf(conn, "POST /v1/sales/%s/orders HTTP/1.1\r\nHost: localhost\r\nX-User-Id: %s\r\n"+
			"Idempotency-Key: one\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n%s", s.sale.ID,
			strings.ReplaceAll(buyer, " ", "-"), `{"quantity":1}`)
		must(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusAccepted
	})
}
