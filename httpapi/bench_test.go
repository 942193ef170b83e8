package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"syscall"
	"testing"
	"time"

	"sluice/httpapi"
	"sluice/httpapi/auth"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/notification"
	"sluice/pipeline/sales"
	"sluice/pipeline/waitlist"
)

// baseline answers at once and for everybody, so that a benchmark measures the handlers alone. It is no stand-in for
// Redis in any test.
type baseline struct {
	sale     *pipeline.Sale
	decision admission.Decision
}

func (b *baseline) Admit(context.Context, *pipeline.Sale, pipeline.OrderRequest) (admission.Decision, error) {
	return b.decision, nil
}

func (b *baseline) Sale(context.Context, string) (*pipeline.Sale, error) { return b.sale, nil }

func (b *baseline) Sales(context.Context, pipeline.SalesFilter) ([]*pipeline.Sale, error) {
	return nil, nil
}

// sink is a ResponseWriter that keeps nothing but the status.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

func benchmarkPost(b *testing.B, code admission.Result, body string, status int) {
	post := newRepeatedOrder(b, auth.Dev{}, []http.Header{{"X-User-Id": {"buyer-000001"}}}, code, body)
	b.ReportAllocs()
	for b.Loop() {
		post.serve(0)
	}
	if post.w.status != status {
		b.Fatalf("got %d, want %d", post.w.status, status)
	}
}

// repeatedOrder is an order that is placed again and again.
type repeatedOrder struct {
	h       http.Handler
	request *http.Request
	who     []http.Header // in turns
	reader  *bytes.Reader
	body    string
	w       *sink
}

func newRepeatedOrder(b *testing.B, buyers interface {
	Authenticate(*http.Request) (string, error)
}, who []http.Header, code admission.Result, body string,
) *repeatedOrder {
	b.Helper()
	base := &baseline{sale: newSale("drop-1", 1), decision: admission.Decision{Result: code, Receipt: admission.Receipt{
		SaleID: "drop-1", OrderID: "01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f", Number: 120376482918403, Quantity: 1,
		Durability: pipeline.DurabilityFsync, AcceptedAt: time.Now(),
	}}}
	log := slog.New(slog.DiscardHandler)
	h := httpapi.New(httpapi.Deps{
		Admission: base, Sales: sales.NewCatalogue(base, log), Stock: &sales.StockReader{}, Orders: &lifecycle.Lookup{},
		Cancel: &lifecycle.Canceller{}, Push: &notification.Hub{}, Waitlist: &waitlist.Service{},
		Auth: buyers, Log: log,
	})
	request, err := http.NewRequest(http.MethodPost, "/v1/sales/drop-1/orders", nil)
	must(b, err)
	for _, header := range who {
		header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
		header.Set("Content-Type", "application/json")
	}
	reader := bytes.NewReader(nil)
	request.Body, request.ContentLength = io.NopCloser(reader), int64(len(body))
	return &repeatedOrder{h, request, who, reader, body, &sink{header: http.Header{}}}
}

// serve places the order as one of the buyers.
func (p *repeatedOrder) serve(buyer int) {
	p.request.Header = p.who[buyer]
	p.reader.Reset([]byte(p.body))
	clear(p.w.header)
	p.h.ServeHTTP(p.w, p.request)
}

// serveAll places it as each of them, and returns the processor time of that.
func (p *repeatedOrder) serveAll(b *testing.B) time.Duration {
	b.Helper()
	began := processorTime(b)
	for buyer := range p.who {
		p.serve(buyer)
	}
	return processorTime(b) - began
}

// BenchmarkPostByToken places orders in turns with the header of development and with tokens that are verified already:
// what a token costs is the difference, in processor time, in one run on one machine. A token that was not seen before
// is measured beside it.
func BenchmarkPostByToken(b *testing.B) {
	tokens, err := auth.NewTokens(auth.TokenOptions{
		Issuer: buyerIssuer, Audience: "shop", Algorithms: []string{"ES256"}, Claim: "sub", Key: publicKey(b),
	})
	must(b, err)
	const buyers = 100
	plainly, provenly := make([]http.Header, buyers), make([]http.Header, buyers)
	for i := range buyers {
		name := fmt.Sprintf("buyer-%06d", i)
		plainly[i] = http.Header{"X-User-Id": {name}}
		provenly[i] = http.Header{"Authorization": {"Bearer " + tokenOf(b, name)}}
	}
	dev := newRepeatedOrder(b, auth.Dev{}, plainly, admission.Accepted, `{"quantity":1}`)
	byToken := newRepeatedOrder(b, tokens, provenly, admission.Accepted, `{"quantity":1}`)
	var plain, again time.Duration
	first := byToken.serveAll(b)
	for b.Loop() {
		plain += dev.serveAll(b)
		again += byToken.serveAll(b)
	}
	if byToken.w.status != http.StatusAccepted || dev.w.status != http.StatusAccepted {
		b.Fatalf("got %d and %d, want 202", byToken.w.status, dev.w.status)
	}
	each := float64(b.N * buyers)
	b.ReportMetric(float64(plain.Nanoseconds())/each/1e3, "µs/dev")
	b.ReportMetric(float64(again.Nanoseconds())/each/1e3, "µs/token")
	b.ReportMetric(float64((again-plain).Nanoseconds())/each/1e3, "µs-more")
	b.ReportMetric(float64(again)/float64(plain), "ratio")
	b.ReportMetric(float64(first.Nanoseconds())/buyers/1e3, "µs/first")
}

// processorTime is what this process has used so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func BenchmarkPostAccepted(b *testing.B) {
	benchmarkPost(b, admission.Accepted, `{"quantity":1}`, http.StatusAccepted)
}

func BenchmarkPostSoldOut(b *testing.B) {
	benchmarkPost(b, admission.SoldOut, `{"quantity":1}`, http.StatusConflict)
}

func BenchmarkPostMalformed(b *testing.B) {
	benchmarkPost(b, admission.Accepted, `{"quantity":0}`, http.StatusBadRequest)
}
