package httpapi_test

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/httpapi"
)

// askStream asks for a URL that opens the stream of an order.
func askStream(orderPath, user string) call {
	return call{method: http.MethodPost, path: orderPath + "/events/url"}.with("X-User-Id", user)
}

type streamURL struct {
	URL       string
	ExpiresAt time.Time `json:"expires_at"`
}

// TestASignedURLOpensAStream without any header, at every api of the installation, for five minutes, and nothing else
// than this stream.
func TestASignedURLOpensAStream(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	secret := bytes.Repeat([]byte("s"), 32)
	options := func(secret []byte, database string) rigOptions {
		return rigOptions{databaseURL: database, deps: func(d *httpapi.Deps) {
			d.StreamSecret = secret
			d.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		}}
	}
	r := newRig(t, options(secret, ""))
	sale := r.create(newSale("drop-1", 10))
	path := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	other := r.expect(order("drop-1", "bob", ""), 202, "").header.Get("Location")
	r.persist(sale)
	got := decode[streamURL](t, r.expect(askStream(path, "ann"), 200, ""))
	left := time.Until(got.ExpiresAt)
	if left <= 0 || left > 5*time.Minute || !strings.HasPrefix(got.URL, path+"/events?") {
		t.Fatalf("got %+v, valid for %s", got, left)
	}
	anonymous := func(url string) call { return call{method: http.MethodGet, path: url} }

	f := r.followURL(t, got.URL)
	f.expect("1 awaiting_payment")
	second := newRig(t, options(secret, r.database)) // another api over the same stores
	second.expect(call{method: http.MethodHead, path: got.URL}, 200, "")
	stranger := newRig(t, options(bytes.Repeat([]byte("x"), 32), r.database))
	stranger.expect(anonymous(got.URL), 401, "unauthenticated")

	asBob := strings.Replace(got.URL, "buyer=ann", "buyer=bob", 1)
	at := strconv.FormatInt(got.ExpiresAt.Unix(), 10)
	later := strings.Replace(got.URL, at, strconv.FormatInt(got.ExpiresAt.Unix()+1, 10), 1)
	for _, forged := range []string{
		asBob, later, strings.Replace(got.URL, path, other, 1), strings.Replace(asBob, path, other, 1),
		strings.Replace(got.URL, "drop-1", "drop-2", 1), got.URL + "x", got.URL[:len(got.URL)-1],
		path + "/events?signature=", path + "/events?buyer=ann&expires=" + at,
	} {
		refused := r.expect(anonymous(forged), 401, "unauthenticated")
		if refused.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no challenge", forged)
		}
	}
	r.expect(anonymous(got.URL+"&buyer=bob"), 400, "invalid-request")
	r.expect(anonymous(path+"/events?buyer=ann&expires=soon&signature=x"), 400, "invalid-request")
	r.expect(anonymous(strings.Replace(got.URL, "/events", "", 1)), 401, "unauthenticated")
	// A header proves something else, and is not asked.
	r.expect(anonymous(asBob).with("X-User-Id", "ann"), 401, "unauthenticated")
	r.expect(anonymous(got.URL).with("Last-Event-ID", "x"), 400, "invalid-request")

	ahead.Store(int64(5*time.Minute + time.Second))
	expired := r.expect(anonymous(got.URL), 401, "unauthenticated").problem()
	if !strings.Contains(expired.Detail, "has expired; POST to") {
		t.Errorf("got %q", expired.Detail)
	}
	ahead.Store(-int64(time.Hour)) // a clock that was set back makes no URL last longer
	r.expect(anonymous(got.URL), 401, "unauthenticated")
}

// TestThePagesOfAnOrigin that is listed may do all that a buyer may; those of another get no permission, and no page
// does where none is listed.
func TestThePagesOfAnOrigin(t *testing.T) {
	t.Parallel()
	const shop = "https://shop.example.com"
	r := newRig(t, rigOptions{deps: func(d *httpapi.Deps) { d.CORSOrigins = []string{"http://localhost:3000", shop} }})
	closed := newRig(t, rigOptions{databaseURL: r.database})
	r.create(newSale("drop-1", 10))
	preflight := func(origin, path string) call {
		return call{method: http.MethodOptions, path: path}.with("Origin", origin).
			with("Access-Control-Request-Method", "POST").
			with("Access-Control-Request-Headers", "authorization,content-type,idempotency-key")
	}
	asked := r.expect(preflight(shop, "/v1/sales/drop-1/orders"), 204, "")
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin": shop, "Access-Control-Allow-Credentials": "true", "Access-Control-Max-Age": "600",
		"Access-Control-Allow-Methods": "GET,HEAD,POST,DELETE",
	} {
		if got := asked.header.Get(name); got != want {
			t.Errorf("preflight: %s: got %q, want %q", name, got, want)
		}
	}
	if got := asked.header.Get("Access-Control-Allow-Headers"); !strings.Contains(got, "Idempotency-Key") ||
		!strings.Contains(got, "Authorization") {
		t.Errorf("preflight allows the headers %q", got)
	}
	placed := r.expect(order("drop-1", "ann", "").with("Origin", shop), 202, "")
	if placed.header.Get("Access-Control-Allow-Origin") != shop || placed.header.Get("Vary") != "Origin" ||
		!strings.Contains(placed.header.Get("Access-Control-Expose-Headers"), "Location") ||
		!strings.Contains(placed.header.Get("Access-Control-Expose-Headers"), "RateLimit-Policy") {
		t.Errorf("an order: got %v", placed.header)
	}
	// A page reads problems too.
	refused := r.expect(order("drop-1", "ann", "").with("Origin", shop), 409, "already-ordered")
	if refused.header.Get("Access-Control-Allow-Origin") != shop {
		t.Errorf("a problem: got %v", refused.header)
	}
	path := placed.header.Get("Location")
	answer := decode[streamURL](t, r.expect(askStream(path, "ann").with("Origin", shop), 200, ""))
	f := r.followURL(t, answer.URL, "Origin", shop)
	f.expect("0 queued")
	if f.header.Get("Access-Control-Allow-Origin") != shop {
		t.Errorf("a stream: got %v", f.header)
	}
	for _, strange := range []call{
		preflight("https://evil.example.com", "/v1/sales/drop-1/orders"), get(path, "ann").with("Origin", "null"),
		get(path, "ann").with("Origin", shop+".evil.example.com"), get(path, "ann").with("Origin", "http://shop.example.com"),
	} {
		if got := r.do(strange); got.header.Get("Access-Control-Allow-Origin") != "" ||
			got.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%v: got %v", strange.header, got.header)
		}
	}
	for _, c := range []call{preflight(shop, "/v1/sales"), get("/v1/sales", "").with("Origin", shop)} {
		for name := range closed.do(c).header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("no origin is listed, and %s is sent", name)
			}
		}
	}
}
