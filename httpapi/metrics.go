package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// unmatched is the route of requests for paths that do not exist: one label value, however many paths are tried.
const unmatched = "unmatched"

// durations is the histogram of answers. Its labels are bounded: routes as they are registered, methods that HTTP
// knows, and five classes of status.
type durations struct{ seconds *prometheus.HistogramVec }

func newDurations(reg prometheus.Registerer) durations {
	d := durations{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sluice_http_request_duration_seconds",
		Help:    "From the end of a request's headers to the end of its answer, in the handler.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15), // 0.5 ms … 8 s, above requestTimeout

		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
	}, []string{"route", "method", "status_class"})}
	if reg == nil {
		return d
	}
	var earlier prometheus.AlreadyRegisteredError
	switch err := reg.Register(d.seconds); {
	case errors.As(err, &earlier): // the other side of the same process counts there too
		d.seconds = earlier.ExistingCollector.(*prometheus.HistogramVec)
	case err != nil:
		panic(err)
	}
	return d
}

func (d durations) observe(path, method string, status int, took time.Duration) {
	d.seconds.WithLabelValues(routeOf(path), methodOf(method), classOf(status)).Observe(took.Seconds())
}

func routeOf(path string) string {
	if path == "" {
		return unmatched
	}
	return path
}

func methodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return method
	default:
		return "other"
	}
}

func classOf(status int) string {
	classes := [...]string{"5xx", "1xx", "2xx", "3xx", "4xx", "5xx"}
	return classes[status/100%len(classes)]
}
