package process

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"sluice/httpapi"
	"sluice/internal/certificate"
	"sluice/internal/config"
)

// shownCertificate is what one of our listeners shows.
type shownCertificate struct {
	*certificate.Current
	setting string // that names its file
	files   certificate.Files
	text    string // of the files, as they were at the start
}

// openCertificate opens that of a setting. It returns nil where none is set.
func openCertificate(
	setting string, files certificate.Files, reg prometheus.Registerer, log *slog.Logger,
) (*shownCertificate, error) {
	if !files.Set() {
		return nil, nil
	}
	text, err := files.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	current, err := certificate.Open(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	if days := current.DaysLeft(); days <= certificate.WarnDays {
		log.Warn("a certificate ends soon, or has ended", "setting", setting, "days_left", days)
	}
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_tls_certificate_left_days", ConstLabels: prometheus.Labels{"setting": setting},
		Help: "Whole days until the end of the certificate that is shown, by the setting that names it.",
	}, func() float64 { return float64(current.DaysLeft()) })
	return &shownCertificate{current, setting, files, text}, nil
}

// openCertificates opens those of an api: of buyers' side and of the operations side, nil where there is none.
func openCertificates(
	cfg config.Config, reg prometheus.Registerer, log *slog.Logger,
) (public, ops *shownCertificate, err error) {
	if public, err = openCertificate(config.HTTPCertificate, cfg.HTTPTLS, reg, log); err != nil {
		return nil, nil, err
	}
	ops, err = openCertificate(config.AdminCertificate, cfg.AdminTLS, reg, log)
	return public, ops, err
}

// present are those that there are.
func present(all ...*shownCertificate) (some []*shownCertificate) {
	for _, c := range all {
		if c != nil {
			some = append(some, c)
		}
	}
	return some
}

// over returns a listener that serves HTTP over TLS where there is a certificate, and answers what net/http would
// refuse in plain text. Limits of connections belong below it: a handshake counts.
func (c *shownCertificate) over(l net.Listener, handshakes *prometheus.CounterVec) net.Listener {
	if c == nil {
		return httpapi.Listener(l)
	}
	return httpapi.TLSListener(l, c.Config(), handshakes)
}

// scheme is that of the URLs of a listener.
func (c *shownCertificate) scheme() string {
	if c == nil {
		return "http"
	}
	return "https"
}
