package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// call is one request of a test.
type call struct {
	method, path string
	body         string
	header       http.Header
}

func get(path, user string) call {
	return call{method: http.MethodGet, path: path}.with("X-User-Id", user)
}

// order asks for units; a body of "" means no body at all.
func order(sale, user, body string) call {
	c := call{method: http.MethodPost, path: "/v1/sales/" + sale + "/orders", body: body}.with("X-User-Id", user)
	if body != "" {
		c = c.with("Content-Type", "application/json")
	}
	return c
}

// with returns the call with a header; an empty value leaves the header out.
func (c call) with(name, value string) call {
	h := http.Header{}
	if c.header != nil {
		h = c.header.Clone()
	}
	if value == "" {
		h.Del(name)
	} else {
		h.Set(name, value)
	}
	c.header = h
	return c
}

// reply is the whole answer to a call.
type reply struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
}

// do sends a call and checks the answer against the contract.
func (r *rig) do(c call) reply {
	r.t.Helper()
	got, err := r.try(c)
	if err != nil {
		r.t.Fatalf("%s %s: %v", c.method, c.path, err)
	}
	return got
}

// try is do for other goroutines than the test's own.
func (r *rig) try(c call) (reply, error) {
	request, err := http.NewRequest(c.method, "http://"+r.address+c.path, strings.NewReader(c.body))
	if err != nil {
		return reply{}, err
	}
	if c.body == "" {
		request.Body, request.ContentLength = http.NoBody, 0
	}
	if c.header != nil {
		request.Header = c.header.Clone()
	}
	began := time.Now()
	response, err := r.client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	got := reply{response.StatusCode, response.Header, body, time.Since(began)}
	if err := r.contract.check(request, got); err != nil {
		return got, fmt.Errorf("the answer breaks the contract: %w\nstatus %d\n%.600s", err, got.status, got.body)
	}
	return got, nil
}

// expect sends a call, demands a status, and a code where the answer is a problem.
func (r *rig) expect(c call, status int, code string) reply {
	r.t.Helper()
	got := r.do(c)
	if got.status != status || got.code() != code {
		r.t.Fatalf("%s %s: got %d %q, want %d %q\n%s", c.method, c.path, got.status, got.code(), status, code, got.body)
	}
	return got
}

// soon sends a call until its answer takes less than a limit, five times at most: a busy machine keeps one answer back,
// a missing deadline all of them. Every answer must be the expected one.
func (r *rig) soon(limit time.Duration, c call, status int, code string) reply {
	r.t.Helper()
	for try := 1; ; try++ {
		got := r.expect(c, status, code)
		if got.took <= limit {
			return got
		}
		if try == 5 {
			r.t.Errorf("%s %s: took %s, and before no less than %s", c.method, c.path, got.took, limit)
			return got
		}
	}
}

// problem is what tests look at in a problem document.
type problem struct {
	Type, Code, Title, Detail, Instance string
	Status                              int
	RequestID                           string `json:"request_id"`
	OrderID                             string `json:"order_id"`
	OpensAt                             string `json:"opens_at"`
	MaxQuantity                         int    `json:"max_quantity"`
	Errors                              []struct{ Field, Detail string }
}

func (a reply) problem() problem {
	var p problem
	if strings.HasPrefix(a.header.Get("Content-Type"), "application/problem+json") {
		_ = json.Unmarshal(a.body, &p) // a document that is none has no code, which every test sees
	}
	return p
}

func (a reply) code() string { return a.problem().Code }

type receipt struct {
	OrderID     string `json:"order_id"`
	OrderNumber string `json:"order_number"`
	SaleID      string `json:"sale_id"`
	Quantity    int
	Status      string
	Durability  string
	AcceptedAt  time.Time `json:"accepted_at"`
}

func decode[T any](t testing.TB, a reply) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

// raw sends bytes that no HTTP client would and reads what comes back.
func (r *rig) raw(text string) reply {
	r.t.Helper()
	conn, err := net.DialTimeout("tcp", r.address, answerLimit)
	must(r.t, err)
	defer conn.Close()
	must(r.t, conn.SetDeadline(time.Now().Add(answerLimit)))
	if _, err := io.WriteString(conn, text); err != nil {
		r.t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(r.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(r.t, err)
	return reply{status: response.StatusCode, header: response.Header, body: body}
}

// jsonValue decodes any JSON.
func jsonValue(b []byte) (any, error) {
	var v any
	err := json.Unmarshal(b, &v)
	return v, err
}
