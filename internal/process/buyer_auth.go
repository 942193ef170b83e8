package process

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi/auth"
	"sluice/internal/config"
)

// buyers identifies the buyers of an api.
type buyers interface {
	Authenticate(r *http.Request) (userID string, err error)
}

// newBuyers returns what identifies buyers, and what fetches the keys for it, or nil where nothing need be fetched.
func newBuyers(cfg config.Config, reg prometheus.Registerer, log *slog.Logger) (buyers, *auth.JWKS, error) {
	switch cfg.AuthMode {
	case config.AuthJWT:
		options := cfg.Tokens
		options.Metrics, options.JWKS.Log = auth.NewMetrics(reg), log
		tokens, err := auth.NewTokens(options)
		if err != nil {
			return nil, nil, err
		}
		return tokens, tokens.JWKS(), nil
	case config.AuthProxy:
		proxy, err := auth.NewProxy(cfg.Proxy)
		return proxy, nil, err
	default:
		log.Warn("AUTH_MODE=dev: anybody can be any buyer by sending X-User-Id; never use this in production")
		return auth.Dev{}, nil, nil
	}
}
