package httpapi_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// badInput is one mistake of a client, and the answer to it.
type badInput struct {
	name   string
	call   call
	status int
	code   string
	field  string // of errors[0], with invalid-request
}

func badOrders() []badInput {
	good := order("drop-1", "bob", `{"quantity":1}`)
	inputs := []badInput{
		{"unknown sale", order("drop-9", "bob", ""), 404, "unknown-sale", ""},
		{"5 KiB, honest", order("drop-1", "bob", `{"quantity":1}`+strings.Repeat(" ", 5<<10)), 413, "too-large", ""},
		{"4 KiB and a byte", order("drop-1", "bob", `{"quantity":1}`+strings.Repeat(" ", 4<<10-13)), 413, "too-large", ""},
		{"1 MiB", order("drop-1", "bob", strings.Repeat("[", 1<<20)), 413, "too-large", ""},
		{"no user", good.with("X-User-Id", ""), 401, "unauthenticated", ""},
		{"300-byte user", good.with("X-User-Id", strings.Repeat("u", 300)), 400, "invalid-request", "X-User-Id"},
		{"129-byte user", good.with("X-User-Id", strings.Repeat("u", 129)), 400, "invalid-request", "X-User-Id"},
		{"user with braces", good.with("X-User-Id", "a{b}"), 400, "invalid-request", "X-User-Id"},
		{"user with a space", good.with("X-User-Id", "a b"), 400, "invalid-request", "X-User-Id"},
		{"user with a tab", good.with("X-User-Id", "a\tb"), 400, "invalid-request", "X-User-Id"},
		{"user that is no UTF-8", good.with("X-User-Id", "a\xff"), 400, "invalid-request", "X-User-Id"},
		{"user with a C1 control", good.with("X-User-Id", "a\u0085b"), 400, "invalid-request", "X-User-Id"},
		{"300-byte key", good.with("Idempotency-Key", strings.Repeat("k", 300)), 400, "invalid-request", "Idempotency-Key"},
		{"256-byte key", good.with("Idempotency-Key", strings.Repeat("k", 256)), 400, "invalid-request", "Idempotency-Key"},
		{"key with a tab", good.with("Idempotency-Key", "a\tb"), 400, "invalid-request", "Idempotency-Key"},
		{"key beyond ASCII", good.with("Idempotency-Key", "schlüssel"), 400, "invalid-request", "Idempotency-Key"},
	}
	twice := good.with("Idempotency-Key", "a")
	twice.header.Add("Idempotency-Key", "a")
	inputs = append(inputs, badInput{"two keys", twice, 400, "invalid-request", "Idempotency-Key"})
	empty := good.with("Idempotency-Key", "a")
	empty.header["Idempotency-Key"] = []string{""}
	inputs = append(inputs, badInput{"empty key", empty, 400, "invalid-request", "Idempotency-Key"})
	users := good.with("X-User-Id", "bob")
	users.header.Add("X-User-Id", "bob")
	inputs = append(inputs, badInput{"two users", users, 400, "invalid-request", "X-User-Id"})

	for _, contentType := range []string{
		"", "text/plain", "application/xml", "application/x-www-form-urlencoded",
		"application/json; charset=latin1", "application/json;;;=", "application/jsonx", "/", "application/vnd.api+json",
	} {
		inputs = append(inputs, badInput{
			"content type " + contentType, good.with("Content-Type", contentType), 415,
			"unsupported-media-type", "",
		})
	}
	inputs = append(inputs, badInput{
		"compressed", good.with("Content-Encoding", "gzip"), 415,
		"unsupported-media-type", "",
	})

	for _, body := range []string{
		"{", "}", "{]", "quantity=1", `{"quantity":1}{"quantity":1}`, `{"quantity":1} x`, `{"quantity":1,}`, `{quantity:1}`,
		`{'quantity':1}`,
		`{"quantity":}`, `{"quantity"}`, `{"quantity":01}`, `{"quantity":+1}`, `{"quantity":0x1}`, `{"quantity":1`,
		`{"quantity":NaN}`,
		`{"quantity":1}` + "\x00", " ", "\ufeff{}", "null", "1", `"quantity"`, "[]", `[{"quantity":1}]`, "true",
		"{\"quantity\":1,\"\xff\":1}", strings.Repeat(`{"quantity":`, 300), "// one\n{}", "{\"quantity\":1}\v",
	} {
		inputs = append(inputs, badInput{"body " + body, order("drop-1", "bob", body), 400, "invalid-request", "body"})
	}
	for _, value := range []string{
		"0", "-1", "-0", "1.5", "1.0", "1e3", "1E0", "0.1", "1001", "2147483648", "4294967297", "9223372036854775808",
		"18446744073709551617", "1" + strings.Repeat("0",
			400), "1e400", `"1"`, `""`, "true", "null", "[]", "[1]", "{}", `{"quantity":1}`,
		"-9223372036854775809", "00001"[:0] + "99999",
	} {
		inputs = append(inputs, badInput{
			"quantity " + value, order("drop-1", "bob", `{"quantity":`+value+`}`), 400,
			"invalid-request", "quantity",
		})
	}
	inputs = append(inputs,
		badInput{"quantity twice", order("drop-1", "bob", `{"quantity":1,"quantity":1}`), 400, "invalid-request", "quantity"},
		badInput{
			"quantity twice, in disguise", order("drop-1", "bob", `{"quantity":1,"\u0071uantity":2}`), 400,
			"invalid-request", "quantity",
		},
		badInput{"above the sale's limit", order("drop-1", "bob", `{"quantity":4}`), 400, "invalid-request", "quantity"},
		badInput{"unknown field", order("drop-1", "bob", `{"quantity":1,"price":0}`), 400, "invalid-request", "price"},
		badInput{"misspelt field", order("drop-1", "bob", `{"Quantity":3}`), 400, "invalid-request", "Quantity"},
		badInput{"nameless field", order("drop-1", "bob", `{"":3}`), 400, "invalid-request", ""},
	)
	for _, id := range []string{
		"a%20b", "a+b", "a%2Fb", "%2F", "%2e%2e%2f", "..", "%2e%2e", "%7Bp00%7D", "a%7Bb%7D", "%00", "drop-1%00",
		strings.Repeat("a", 65), "Drop-1", "-drop",
		"dröp", "dr%C3%B6p", "%ff", "drop-1%0a", "drop_1", "*", ":sale", "%25", "drop-1%3F", strings.Repeat("%41", 1000),
	} {
		inputs = append(inputs, badInput{"sale " + id, order(id, "bob", ""), 404, "unknown-sale", ""})
	}
	return inputs
}

// TestBadInputWritesNothing sends everything that a client can get wrong. Each is answered with its code, and all
// together leave not one byte in Redis or Postgres.
func TestBadInputWritesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 5))
	// The first order leases a block of order numbers, so that not even that counter moves afterwards.
	r.expect(order("drop-1", "ann", ""), 202, "")
	before := r.written()
	for _, bad := range badOrders() {
		got := r.do(bad.call)
		p := got.problem()
		if got.status != bad.status || p.Code != bad.code {
			t.Errorf("%.60q: got %d %q, want %d %q\n%.300s", bad.name, got.status, p.Code, bad.status, bad.code, got.body)
			continue
		}
		if bad.code == "invalid-request" && (len(p.Errors) != 1 || p.Errors[0].Field != bad.field ||
			p.Errors[0].Detail == "") {
			t.Errorf("%.60q: got errors %+v, want one about %q", bad.name, p.Errors, bad.field)
		}
		if bad.code == "unauthenticated" && got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%.60q: no WWW-Authenticate", bad.name)
		}
	}
	if after := r.written(); !maps.Equal(before, after) {
		t.Errorf("something was written:\nbefore %q\nafter  %q", before, after)
	}
	r.expect(order("drop-1", "bob", `{"quantity":1}`), 202, "") // and bob may still order
}

// TestAllFaultsAtOnce: a client learns everything that is wrong with its fields in one go.
func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 5))
	got := r.expect(order("drop-1", "bob", `{"quantity":0}`).with("Idempotency-Key", strings.Repeat("k", 300)), 400,
		"invalid-request").problem()
	if len(got.Errors) != 2 || got.Errors[0].Field != "Idempotency-Key" || got.Errors[1].Field != "quantity" {
		t.Errorf("got %+v, want the key and the quantity", got.Errors)
	}
}

// TestLargestGoodInput: what is still within the limits is accepted.
func TestLargestGoodInput(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := newSale("a"+strings.Repeat("-", 62)+"z", 2000)
	sale.MaxQuantity = 1000
	r.create(sale)
	body := `{"quantity":1000}`
	body += strings.Repeat(" ", 4<<10-len(body))
	big := order(sale.ID, strings.Repeat("ü", 64), body).with("Idempotency-Key", strings.Repeat("~", 255))
	r.expect(big, 202, "")
	r.expect(big, 202, "")
	escaped := order("%61"+sale.ID[1:], "bob", `{"\u0071uantity":1}`)
	r.expect(escaped, 202, "")
}

// TestBodyOfUnknownLength: a body that does not say how long it is meets the same limit.
func TestBodyOfUnknownLength(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 5))
	chunked := func(body string) string {
		return fmt.Sprintf("POST /v1/sales/drop-1/orders HTTP/1.1\r\nHost: x\r\nX-User-Id: ann\r\nContent-Type: application/json\r\n"+
			"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	}
	for _, c := range []struct {
		body   string
		status int
		code   string
	}{
		{strings.Repeat(" ", 65<<10), 413, "too-large"},
		{`{"quantity":1}` + strings.Repeat(" ", 4<<10+1-14), 413, "too-large"},
		// read whole: it is above the sale's limit
		{`{"quantity":9}` + strings.Repeat(" ", 4<<10-14), 400, "invalid-request"},
		{`{"quantity":2}`, 202, ""},
		{`{"quantity":`, 400, "invalid-request"},
	} {
		got := r.raw(chunked(c.body))
		if got.status != c.status || got.code() != c.code {
			t.Errorf("%.20q: got %d %q, want %d %q", c.body, got.status, got.code(), c.status, c.code)
		}
	}
	cut := "POST /v1/sales/drop-1/orders HTTP/1.1\r\nHost: x\r\nX-User-Id: eve\r\nContent-Type: application/json\r\n" +
		"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
	if got := r.raw(cut); got.status != 400 || got.code() != "invalid-request" {
		t.Errorf("broken chunk: got %d %q, want 400 invalid-request", got.status, got.code())
	}
}
