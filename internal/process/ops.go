package process

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/internal/config"
)

// newRegistry returns a registry with the metrics of the Go runtime and of the build.
func newRegistry(program config.Program, version string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_build_info",
		Help: "Always 1; the labels tell which program this is, and its version.",
	}, []string{"program", "version"})
	build.WithLabelValues(string(program), version).Set(1)
	reg.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// opsHandler serves health, readiness and metrics.
func opsHandler(reg *prometheus.Registry, ready http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	mux.Handle("GET /readyz", ready)
	mux.Handle("GET /metrics",
		promhttp.HandlerFor(reg, promhttp.HandlerOpts{Timeout: 5 * time.Second, MaxRequestsInFlight: 4}))
	return mux
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}

// listen opens a server's address.
func listen(ctx context.Context, server *http.Server) (net.Listener, error) {
	var lc net.ListenConfig
	if path, socket := strings.CutPrefix(server.Addr, "unix:"); socket {
		return listenSocket(ctx, &lc, path)
	}
	return lc.Listen(ctx, "tcp", server.Addr)
}

// socketMode lets the proxy's group in, besides the user that the api runs as.
const socketMode = 0o660

// listenSocket opens a Unix socket. One that a process left behind which was killed is replaced; a file that is no
// socket, or one that a process serves, is not.
func listenSocket(ctx context.Context, lc *net.ListenConfig, path string) (net.Listener, error) {
	if info, err := os.Stat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		dialer := net.Dialer{Timeout: time.Second}
		if c, err := dialer.DialContext(ctx, "unix", path); err == nil {
			return nil, errors.Join(errors.New("another process serves this socket"), c.Close())
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// serve serves until the context ends, then waits for requests under way, at most so long.
func serve(ctx context.Context, server *http.Server, l net.Listener, shutdown time.Duration, log *slog.Logger) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdown)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		log.Warn("requests under way were cut off", "error", err)
		_ = server.Close() // the error says why
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// opsServer serves the operations side of a process. Its limits are small: only operators and scrapers call it.
func opsServer(addr string, h http.Handler) *http.Server {
	return &http.Server{
		Addr: addr, Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
}
