package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/internal/testkit"
)

// shop is what the people of a shop have: the two addresses, and the secrets.
type shop struct {
	*testing.T
	api, admin, token, secret string
	databaseURL, redisURL     string
	serverLog                 string // of Postgres

	mu     sync.Mutex // protects the rest
	events []string   // types, as they arrived
}

const storyLimit = 2 * time.Minute

func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{T: t, token: "an-admin-token-of-the-shop-in-the-story", secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	dev, api, dir := startDevWith(t, []string{
		"ADMIN_TOKEN=" + s.token, "PAYMENT_WEBHOOK_SECRET=" + s.secret, "WEBHOOK_ALLOW_PRIVATE=true",
		"ADMIN_ADDR=127.0.0.1:0",
	})
	banner := dev.out.String()
	servers := regexp.MustCompile(`export DATABASE_URL='([^']*)' REDIS_URL='([^']*)'`).FindStringSubmatch(banner)
	s.api, s.databaseURL, s.redisURL = api, servers[1], servers[2]
	s.serverLog = filepath.Join(dir, "postgres", "server.log")
	s.admin = regexp.MustCompile(`operations (http://[0-9.:]+)\n`).FindStringSubmatch(banner)[1]
	return s
}

// answered is an answer in JSON, or anything else.
type answered struct {
	status int
	body   []byte
	fields map[string]any
}

func (a answered) text(field string) string { return fmt.Sprint(a.fields[field]) }

// call sends a request, with a body unless that is empty, and expects a status.
func (s *shop) call(want int, method, address, body string, headers ...string) answered {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	must(s.T, err)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	must(s.T, err)
	defer response.Body.Close()
	got := answered{status: response.StatusCode}
	got.body, err = io.ReadAll(response.Body)
	must(s.T, err)
	_ = json.Unmarshal(got.body, &got.fields) // not all answers are objects
	if want != 0 && got.status != want {
		s.Fatalf("%s %s %s: got %d, want %d: %s", method, address, body, got.status, want, got.body)
	}
	return got
}

func (s *shop) operator(want int, method, path, body string, headers ...string) answered {
	s.Helper()
	return s.call(want, method, s.admin+"/admin/v1/"+path, body,
		append([]string{"Authorization", "Bearer " + s.token}, headers...)...)
}

func (s *shop) buyer(want int, user, method, path string, headers ...string) answered {
	s.Helper()
	return s.call(want, method, s.api+"/v1/sales/lamp/"+path, "", append([]string{"X-User-Id", user}, headers...)...)
}

// order has a buyer order, and waits until that is stored.
func (s *shop) order(user string) (id string) {
	s.Helper()
	got := s.buyer(201, user, http.MethodPost, "orders", "Prefer", "wait=30", "Idempotency-Key", "k-"+user)
	return got.text("order_id")
}

// provider sends a webhook of the payment provider.
func (s *shop) provider(kind string, data map[string]any) answered {
	s.Helper()
	body, err := json.Marshal(map[string]any{"type": kind, "data": data})
	must(s.T, err)
	hook, err := standardwebhooks.NewWebhook(s.secret)
	must(s.T, err)
	id, now := fmt.Sprint("msg_", data["payment_id"], data["refund_id"]), time.Now()
	signature, err := hook.Sign(id, now, body)
	must(s.T, err)
	return s.call(200, http.MethodPost, s.api+"/v1/webhooks/payments", string(body), "webhook-id", id,
		"webhook-timestamp", strconv.FormatInt(now.Unix(), 10), "webhook-signature", signature)
}

func (s *shop) pays(order, payment string) (outcome string) {
	s.Helper()
	return s.provider("payment.succeeded", map[string]any{
		"payment_id": payment, "sale_id": "lamp", "order_id": order, "amount": 2499, "currency": "EUR",
	}).text("outcome")
}

// becomes waits until an order has a status.
func (s *shop) becomes(user, order, status string) {
	s.Helper()
	testkit.Eventually(s.T, storyLimit, "order "+order+" to be "+status, func() bool {
		return s.buyer(200, user, http.MethodGet, "orders/"+order).text("status") == status
	})
}

// hears registers an endpoint, and waits for events of it.
func (s *shop) listens() {
	s.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event struct{ Type string }
		if json.NewDecoder(r.Body).Decode(&event) == nil {
			s.mu.Lock()
			s.events = append(s.events, event.Type)
			s.mu.Unlock()
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	s.Cleanup(receiver.Close)
	s.operator(201, http.MethodPost, "endpoints", fmt.Sprintf(`{"url":%q}`, receiver.URL+"/hook"))
}

func (s *shop) heard(types ...string) {
	s.Helper()
	for _, kind := range types {
		testkit.Eventually(s.T, storyLimit, "the event "+kind, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Contains(s.events, kind)
		})
	}
}

// listed are the orders that a search finds, by number.
func (s *shop) listed(query string) (numbers []string) {
	s.Helper()
	for _, order := range s.operator(200, http.MethodGet, "orders?"+query, "").fields["orders"].([]any) {
		numbers = append(numbers, fmt.Sprint(order.(map[string]any)["order_number"]))
	}
	return numbers
}

// TestAShopsStory is a sale from beginning to end, over HTTP alone: created, edited, open, sold out; a turn on the
// waitlist; payments, one of them double; a refund, a return, more time to pay; more stock; a search and an export; its
// end, Redis' loss of everything days later, and an audit that is still clean.
func TestAShopsStory(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	s.listens()
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339Nano) }
	s.operator(201, http.MethodPost, "sales", fmt.Sprintf(`{"id":"lamp","title":"Lamp","total":3,"waitlist":10,
		"unit_price":1999,"currency":"EUR","opens_at":%q,"closes_at":%q}`, at(8*time.Second), at(time.Hour)))
	s.buyer(409, "early", http.MethodPost, "orders")
	edited := s.operator(200, http.MethodPatch, "sales/lamp", `{"title":"Lamp No. 7","unit_price":2499,"note":"agreed with Ann"}`)
	if edited.text("title") != "Lamp No. 7" || edited.text("note") != "agreed with Ann" {
		t.Errorf("edited: %s", edited.body)
	}
	testkit.Eventually(t, storyLimit, "the sale to open", func() bool {
		return s.call(200, http.MethodGet, s.api+"/v1/sales/lamp", "").text("state") == "open"
	})

	// Sold out, and a turn on the waitlist.
	ann, bob, cy := s.order("ann"), s.order("bob"), s.order("cy")
	refused := s.buyer(409, "dan", http.MethodPost, "orders")
	if refused.text("code") != "sold-out" || refused.text("waitlist") != "true" {
		t.Errorf("sold out: %s", refused.body)
	}
	dan := s.buyer(202, "dan", http.MethodPost, "waitlist").text("order_id")
	waits := s.buyer(200, "dan", http.MethodGet, "orders/"+dan)
	if waits.text("status") != "waiting" || waits.text("position") != "1" {
		t.Errorf("dan waits: %s", waits.body)
	}
	s.buyer(200, "ann", http.MethodPost, "orders/"+ann+"/cancel")
	s.becomes("dan", dan, "awaiting_payment")
	s.heard("sale.created", "sale.opened", "sale.sold_out", "order.cancelled", "waitlist.turn")

	// Payments, a double one, and the money that goes back.
	for order, payment := range map[string]string{bob: "pay_bob", cy: "pay_cy", dan: "pay_dan"} {
		if got := s.pays(order, payment); got != "paid" {
			t.Errorf("%s: got %s, want paid", payment, got)
		}
	}
	if got := s.pays(bob, "pay_bob_again"); got != "refund_due" {
		t.Errorf("the double payment: got %s", got)
	}
	refund := map[string]any{"refund_id": "re_bob", "payment_id": "pay_bob_again", "amount": 2499, "currency": "EUR"}
	if got := s.provider("payment.refunded", refund).text("outcome"); got != "refunded" {
		t.Errorf("the refund: got %s", got)
	}
	s.becomes("bob", bob, "paid")
	s.operator(200, http.MethodPost, "sales/lamp/orders/"+cy+"/return", `{"restock":true,"reason":"sent back"}`)
	s.becomes("cy", cy, "returned")
	if got := s.listed("sale=lamp&payment=refund_due"); len(got) != 1 {
		t.Errorf("orders with a payment to refund: %v", got)
	}
	due := s.operator(200, http.MethodGet, "payments?outcome=refund_due", "").fields["payments"].([]any)
	if len(due) != 1 {
		t.Fatalf("payments to refund: %v", due)
	}
	s.operator(200, http.MethodPost, fmt.Sprintf("payments/%v/refunded", due[0].(map[string]any)["id"]), `{"refund_id":"re_cy"}`)
	s.becomes("cy", cy, "refunded")

	// The unit that came back, with more time to pay; more stock, once although it was asked for twice.
	var eve string
	testkit.Eventually(t, storyLimit, "the returned unit to be sold again", func() bool {
		got := s.buyer(0, "eve", http.MethodPost, "orders", "Prefer", "wait=30", "Idempotency-Key", "k-eve")
		eve = got.text("order_id")
		return got.status == http.StatusCreated
	})
	before := s.buyer(200, "eve", http.MethodGet, "orders/"+eve).text("pay_by")
	s.operator(200, http.MethodPost, "sales/lamp/orders/"+eve+"/extend",
		fmt.Sprintf(`{"until":%q,"reason":"the provider was down"}`, at(2*time.Hour)))
	if after := s.buyer(200, "eve", http.MethodGet, "orders/"+eve).text("pay_by"); after <= before {
		t.Errorf("pay_by %s, and %s before the extension", after, before)
	}
	if got := s.pays(eve, "pay_eve"); got != "paid" {
		t.Errorf("eve pays: got %s", got)
	}
	for range 2 {
		got := s.operator(200, http.MethodPost, "sales/lamp/restock", `{"add":2}`, "Idempotency-Key", "more-lamps")
		if got.text("total") != "5" {
			t.Errorf("restocked: %s", got.body)
		}
	}
	fay := s.order("fay")
	if got := s.pays(fay, "pay_fay"); got != "paid" {
		t.Errorf("fay pays: got %s", got)
	}
	s.heard("payment.received", "payment.refund_due", "payment.refunded", "order.returned", "order.refunded",
		"order.extended", "sale.restocked")

	// What operators look for.
	number := s.buyer(200, "fay", http.MethodGet, "orders/"+fay).text("order_number")
	for _, query := range []string{"buyer=fay", "number=" + number, "payment_id=pay_fay", "order=" + fay} {
		if got := s.listed(query); !slices.Equal(got, []string{number}) {
			t.Errorf("%s: got %v, want %s", query, got, number)
		}
	}
	if got := s.listed("sale=lamp&status=paid"); len(got) != 4 {
		t.Errorf("paid orders: %v", got)
	}
	exported := s.operator(200, http.MethodGet, "orders/export?sale=lamp", "").body
	rows, err := csv.NewReader(bytes.NewReader(exported)).ReadAll()
	if err != nil || len(rows) != 1+6 {
		t.Errorf("the export has %d rows, %v, want a header and 6 orders:\n%s", len(rows), err, exported)
	}
	s.operator(200, http.MethodPost, "sales/lamp/close", "")
	s.heard("sale.closed")
	s.buyer(409, "gil", http.MethodPost, "orders")
	s.isClean(false)
	s.daysLater()
	// An api reads the sales once a second, and may not know yet that days have gone by.
	testkit.Eventually(t, storyLimit, "an order to be told that the sale is over", func() bool {
		return s.buyer(0, "gil", http.MethodPost, "orders").text("code") == "sale-closed"
	})
	s.isClean(true)
	s.refusesNothing()
}

// refusesNothing looks at the log of Postgres, which has each right that a program lacked, whatever became of it: api
// and workers have roles of their own here.
func (s *shop) refusesNothing() {
	s.Helper()
	log, err := os.ReadFile(s.serverLog)
	must(s.T, err)
	if at := bytes.Index(log, []byte("permission denied")); at >= 0 {
		s.Errorf("Postgres refused: %s", log[at:min(at+400, len(log))])
	}
	conn, err := pgx.Connect(s.Context(), s.databaseURL)
	must(s.T, err)
	defer func() { _ = conn.Close(context.WithoutCancel(s.Context())) }()
	var roles []string
	must(s.T, conn.QueryRow(s.Context(), `select array_agg(distinct usename::text order by usename::text)
		from pg_stat_activity where application_name = 'sluice'`).Scan(&roles))
	if !slices.Equal(roles, []string{"sluice_api", "sluice_worker"}) {
		s.Errorf("the programs are connected as %v", roles)
	}
}

// isClean audits the sale, alone from Postgres or not.
func (s *shop) isClean(alone bool) {
	s.Helper()
	var got answered
	testkit.Eventually(s.T, storyLimit, "an exact audit", func() bool {
		got = s.operator(0, http.MethodGet, "sales/lamp/audit", "")
		return got.text("exact") == "true"
	})
	if got.text("clean") != "true" || got.text("orders") != "6" || got.text("postgres_alone") != fmt.Sprint(alone) {
		s.Errorf("the audit: %s", got.body)
	}
}

// daysLater moves the sale back by four days, and has Redis lose everything.
func (s *shop) daysLater() {
	s.Helper()
	conn, err := pgx.Connect(s.Context(), s.databaseURL)
	must(s.T, err)
	defer func() { _ = conn.Close(context.WithoutCancel(s.Context())) }()
	_, err = conn.Exec(s.Context(),
		`update sales set opens_at = opens_at - interval '4 days', closes_at = closes_at - interval '4 days'`)
	must(s.T, err)
	options, err := redis.ParseURL(s.redisURL)
	must(s.T, err)
	rdb := redis.NewClient(options)
	defer func() { _ = rdb.Close() }()
	must(s.T, rdb.FlushAll(s.Context()).Err())
	testkit.Eventually(s.T, storyLimit, "the api to be ready again", func() bool {
		return s.call(0, http.MethodGet, s.api+"/readyz", "").status == http.StatusOK
	})
}
