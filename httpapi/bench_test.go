package httpapi_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"sluice/httpapi"
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
	base := &baseline{sale: newSale("drop-1", 1), decision: admission.Decision{Result: code, Receipt: admission.Receipt{
		SaleID: "drop-1", OrderID: "01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f", Number: 120376482918403, Quantity: 1,
		Durability: pipeline.DurabilityFsync, AcceptedAt: time.Now(),
	}}}
	log := slog.New(slog.DiscardHandler)
	h := httpapi.New(httpapi.Deps{
		Admission: base, Sales: sales.NewCatalogue(base, log), Stock: &sales.StockReader{}, Orders: &lifecycle.Lookup{},
		Cancel: &lifecycle.Canceller{}, Push: &notification.Hub{}, Waitlist: &waitlist.Service{},
		Auth: httpapi.DevAuth{}, Log: log,
	})
	request, err := http.NewRequest(http.MethodPost, "/v1/sales/drop-1/orders", nil)
	must(b, err)
	request.Header.Set("X-User-Id", "buyer-000001")
	request.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
	request.Header.Set("Content-Type", "application/json")
	reader := bytes.NewReader(nil)
	request.Body, request.ContentLength = io.NopCloser(reader), int64(len(body))
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset([]byte(body))
		clear(w.header)
		h.ServeHTTP(w, request)
	}
	if w.status != status {
		b.Fatalf("got %d, want %d", w.status, status)
	}
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
