package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
)

const (
	requestDeadline = 3 * time.Second // one request; the API promises an answer within 2 s
	answerLimit     = 64 << 10        // bytes of an answer; real ones have a few hundred
)

// request is one order request of a buyer.
type request struct {
	buyer    uint32
	sale     uint8
	quantity uint8
	keyed    bool
}

func userOf(buyer uint32) string { return "buyer-" + strconv.FormatUint(uint64(buyer), 10) }

// client sends requests as many buyers do, over connections that it keeps.
type client struct {
	http  http.Client
	apis  []string // base URLs, of the proxies before the APIs: they outlive every API
	sales []string // ids
}

func newClient(apis, sales []string, conns int) *client {
	return &client{apis: apis, sales: sales, http: http.Client{Transport: &http.Transport{
		Proxy:           nil, // the APIs are on this machine, whatever the environment says
		MaxConnsPerHost: conns, MaxIdleConnsPerHost: conns, MaxIdleConns: conns * len(apis),
		IdleConnTimeout: time.Minute, DisableCompression: true,
	}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// answer is what an API said.
type answer struct {
	status     int
	code       string // of a problem
	order      uuid.UUID
	number     int64
	quantity   int
	durability string
}

// send asks one of the APIs. An error says why there is no answer.
func (c *client) send(ctx context.Context, api int, r request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestDeadline)
	defer cancel()
	body := fmt.Appendf(nil, `{"quantity":%d}`, r.quantity)
	to := c.apis[api%len(c.apis)] + "/v1/sales/" + c.sales[r.sale] + "/orders"
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	post.GetBody = nil // a request that lost its connection is not sent again behind our back
	post.Header.Set("Content-Type", "application/json")
	post.Header.Set("X-User-Id", userOf(r.buyer))
	if r.keyed {
		post.Header.Set("Idempotency-Key", "key-"+userOf(r.buyer))
	}
	response, err := c.http.Do(post)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return answer{}, err
	}
	return readAnswer(response.StatusCode, text)
}

func readAnswer(status int, text []byte) (answer, error) {
	var said struct {
		Code       string `json:"code"`
		OrderID    string `json:"order_id"`
		Number     string `json:"order_number"`
		Quantity   int    `json:"quantity"`
		Durability string `json:"durability"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return answer{}, fmt.Errorf("status %d with a body that is not JSON: %w", status, err)
	}
	a := answer{status: status, code: said.Code, quantity: said.Quantity, durability: said.Durability}
	a.order, _ = uuid.Parse(said.OrderID) // the nil one then tells that there was none
	a.number, _ = strconv.ParseInt(said.Number, 10, 64)
	return a, nil
}
