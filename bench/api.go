package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"sluice/httpapi"
	"sluice/httpapi/auth"
	"sluice/internal/process"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/journal"
	"sluice/pipeline/notification"
	"sluice/pipeline/redisstore"
)

// ordersPath is where the sale's orders are posted.
const ordersPath = "/v1/sales/" + saleID + "/orders"

// api is the public side twice: as it is, and with an admission that answers at once. Router, middleware,
// authentication, decoding and answer are the same; what differs is the gate, the script call, and Redis with its
// disk.
type api struct {
	admission   *admission.Controller
	full, quick http.Handler
}

func newAPI(ctx context.Context, s *testbed) (*api, error) {
	admission, err := newAdmission(ctx, s, nil)
	if err != nil {
		return nil, err
	}
	parts := process.NewParts(s.rdb, s.store, partitions, s.log)
	parts.Keys = keys
	handler := func(admitter httpapi.Admitter) http.Handler {
		return httpapi.New(httpapi.Deps{
			Admission: admitter,
			Sales:     s.sales,
			Stock:     parts.Stock(),
			Orders:    parts.Lookup(),
			Cancel:    parts.Canceller(),
			// nobody waits, so it need not run
			Push: notification.NewHub(notification.HubConfig{
				Redis: s.rdb, Keys: keys, Partitions: partitions,
				Orders: s.store, Log: s.log,
			}),
			Waitlist: parts.Waitlist(),
			Auth:     auth.Dev{},
			Log:      s.log,
		})
	}
	return &api{admission: admission, full: handler(admission), quick: handler(newQuick())}, nil
}

// newAdmission returns an admission whose accepts are kept in a journal; nil: in memory.
func newAdmission(ctx context.Context, s *testbed, kept *journal.Journal) (*admission.Controller, error) {
	features, err := redisstore.Probe(ctx, s.rdb)
	if err != nil {
		return nil, err
	}
	return admission.New(s.rdb, keys, admission.Options{
		Durability: features.Durability(), StreamMaxLag: maxEvents, Journal: kept,
	}, nil, s.log), nil
}

func (a *api) close(ctx context.Context) error { return a.admission.Close(ctx) }

// quick accepts everybody and remembers nobody.
type quick struct{ decision admission.Decision }

func newQuick() quick {
	return quick{admission.Decision{
		Result: admission.Accepted,
		Receipt: admission.Receipt{
			SaleID: saleID, OrderID: "01936f2e-8a4b-7c3d-9e5f-0123456789ab", Number: 1 << 60, Quantity: 1,
			Durability: pipeline.DurabilityMemory, AcceptedAt: time.Now(),
		},
	}}
}

func (q quick) Admit(context.Context, *pipeline.Sale, pipeline.OrderRequest) (admission.Decision, error) {
	return q.decision, nil
}

// listening is a handler behind the api's own server, on a free loopback port.
type listening struct {
	server *http.Server
	addr   string
	failed chan error
}

func listen(ctx context.Context, h http.Handler) (*listening, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	one := &listening{server: httpapi.Server("", h), addr: l.Addr().String(), failed: make(chan error, 1)}
	go func() { one.failed <- one.server.Serve(httpapi.Listener(l)) }()
	return one, nil
}

// close cuts off what is left, which is idle connections.
func (l *listening) close() error {
	err := l.server.Close()
	if served := <-l.failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
