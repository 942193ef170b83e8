package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/httpapi"
	"sluice/pipeline/notification"
)

// follower is a client of a stream of events.
type follower struct {
	t      *testing.T
	header http.Header
	lines  *bufio.Scanner
	leave  func()
	last   waitingOrder // what the last event told
}

// follow opens a stream, and demands that it is one.
func (r *rig) follow(t *testing.T, path, user, lastID string) *follower {
	t.Helper()
	header := []string{"X-User-Id", user}
	if lastID != "" {
		header = append(header, "Last-Event-ID", lastID)
	}
	return r.followURL(t, path+"/events", header...)
}

// followURL is follow with headers of the caller's own, or none at all.
func (r *rig) followURL(t *testing.T, url string, header ...string) *follower {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.address+url, http.NoBody)
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // r.client ends what lasts long
	response, err := client.Do(request)                                        //nolint:bodyclose // leave does
	must(t, err)
	f := &follower{
		t: t, header: response.Header, lines: bufio.NewScanner(response.Body),
		leave: func() { _ = response.Body.Close() },
	}
	t.Cleanup(f.leave)
	if response.StatusCode != http.StatusOK || f.header.Get("Content-Type") != "text/event-stream" ||
		f.header.Get("Cache-Control") != "no-store" ||
		f.header.Get("X-Accel-Buffering") != "no" || f.header.Get("X-Request-Id") == "" ||
		f.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("got %d %v", response.StatusCode, f.header)
	}
	return f
}

// next is the next event, as "id status", "ping", or "end".
func (f *follower) next() string {
	f.t.Helper()
	id, event := "", ""
	for f.lines.Scan() {
		name, value, _ := strings.Cut(f.lines.Text(), ": ")
		switch {
		case name == "id":
			id = value
		case name == "event":
			event = value
		case name == "data":
			f.last = waitingOrder{}
			if err := json.Unmarshal([]byte(value), &f.last); err != nil || event != "status" {
				f.t.Fatalf("event %q: %v in %s", event, err, value)
			}
			return id + " " + f.last.Status
		case f.lines.Text() == ":":
			return "ping"
		}
	}
	return "end"
}

func (f *follower) expect(want ...string) {
	f.t.Helper()
	for _, w := range want {
		if got := f.next(); got != w {
			f.t.Fatalf("got %q, want %q", got, w)
		}
	}
}

const pay = `update orders set status = 'paid', paid_at = now(), payment_id = 'p' where user_id = $1`

func giveEvents(t *testing.T, c *contract) {
	r := newRig(t, rigOptions{contract: c})
	sale := r.create(newSale("drop-1", 10))
	path := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	events := path + "/events"
	r.expect(get(events, "ann{}"), 400, "invalid-request")
	for _, bad := range []string{"x", "-1", "1.0", "32768", "99999999999999999999"} {
		r.expect(get(events, "ann").with("Last-Event-ID", bad), 400, "invalid-request")
	}
	r.expect(get(events, ""), 401, "unauthenticated")
	r.expect(get(events, "bob"), 404, "unknown-order")
	r.expect(get(strings.Replace(events, "drop-1", "drop-2", 1), "ann"), 404, "unknown-sale")
	r.expect(get("/v1/sales/drop-1/orders/x/events", "ann"), 404, "unknown-order")
	r.expect(get(events, breakingUser), 500, "internal")
	r.expect(askStream(path, "ann{}"), 400, "invalid-request")
	r.expect(askStream(path, ""), 401, "unauthenticated")
	r.expect(askStream(path, "bob"), 404, "unknown-order")
	r.expect(askStream(strings.Replace(path, "drop-1", "drop-2", 1), "ann"), 404, "unknown-sale")
	r.expect(askStream(path, breakingUser), 500, "internal")
	r.expect(askStream(path, "ann"), 200, "")
	r.watching(0)
	r.persist(sale)
	r.exec(pay, "ann")
	whole := r.expect(get(events, "ann"), 200, "") // a final status ends the stream
	if !strings.HasPrefix(string(whole.body), "retry: 1000\n\nid: 2\nevent: status\ndata: {") ||
		!strings.HasSuffix(string(whole.body), "}\n\n") {
		t.Errorf("got %q", whole.body)
	}
	r.expect(get(events, "ann").with("Last-Event-ID", "2"), 204, "")
	r.expect(get(events, "ann").with("Last-Event-ID", "1"), 200, "")
	head := get(events, "ann")
	head.method = http.MethodHead
	r.expect(head, 200, "")
}

// TestEventsFollowAnOrder: from queued to paid, by notification alone; a second stream that has seen a part gets the
// rest.
func TestEventsFollowAnOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{push: notification.HubConfig{SweepEvery: time.Hour}})
	sale := r.create(newSale("drop-1", 10))
	path := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	whole := r.follow(t, path, "ann", "")
	whole.expect("0 queued")
	r.persist(sale)
	r.notify(sale, path)
	whole.expect("1 awaiting_payment")
	rest := r.follow(t, path, "ann", "1")
	r.exec(pay, "ann")
	r.notify(sale, path, path)
	whole.expect("2 paid", "end")
	rest.expect("2 paid", "end")
	r.watching(0)
	// A client that saw what a restored Postgres has lost gets the current state.
	r.follow(t, path, "ann", "7").expect("2 paid", "end")
}

// TestEventsWithoutNews: a change without a notification is found by the sweep.
func TestEventsWithoutNews(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{push: notification.HubConfig{SweepEvery: 20 * time.Millisecond}})
	sale := r.create(newSale("drop-1", 10))
	path := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	f := r.follow(t, path, "ann", "")
	f.expect("0 queued")
	r.persist(sale)
	f.expect("1 awaiting_payment")
	r.expect(cancel(path, "ann"), 200, "")
	f.expect("2 cancelled")
	// A payment that comes later is still sent.
	r.exec(`update orders set status = 'refund_due' where user_id = 'ann'`)
	f.expect("3 refund_due", "end")
}

// TestEventsBeat: an idle stream shows that it lives, and one whose client has left ends by that.
func TestEventsBeat(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{deps: heartbeats(10 * time.Millisecond)})
	r.create(newSale("drop-1", 10))
	path := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	f := r.follow(t, path, "ann", "")
	f.expect("0 queued", "ping", "ping")
	r.watching(1)
	f.leave()
	r.watching(0)
}

// TestEventsLimits: of the process and of one order; a client that leaves makes room.
func TestEventsLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{push: notification.HubConfig{Limit: 18}, deps: heartbeats(10 * time.Millisecond)})
	r.create(newSale("drop-1", 10))
	path := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	var all []*follower
	for range 16 {
		all = append(all, r.follow(t, path, "ann", ""))
	}
	refused := r.expect(get(path+"/events", "ann"), 503, "overloaded")
	if !strings.Contains(refused.problem().Detail, "16 clients wait for news of this order") ||
		refused.header.Get("Retry-After") != "1" {
		t.Errorf("got %v %s", refused.header, refused.body)
	}
	for i := range 2 {
		other := fmt.Sprintf("buyer-%d", i)
		r.follow(t, r.expect(order("drop-1", other, ""), 202, "").header.Get("Location"), other, "")
	}
	last := r.expect(order("drop-1", "cy", ""), 202, "").header.Get("Location")
	r.expect(get(last+"/events", "cy"), 503, "overloaded")
	all[0].leave()
	r.watching(17)
	r.follow(t, last, "cy", "").expect("0 queued")
}

// TestEventsEndWithTheServer: streams end when the server stops, and none begins any more.
func TestEventsEndWithTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 10))
	path := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	f := r.follow(t, path, "ann", "")
	f.expect("0 queued")
	r.endPush()
	f.expect("end")
	r.expect(get(path+"/events", "ann"), 503, "store-unavailable")
}

func heartbeats(every time.Duration) func(*httpapi.Deps) {
	return func(d *httpapi.Deps) { d.Heartbeat = every }
}
