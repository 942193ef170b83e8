package config

import (
	"errors"
	"fmt"
	"strings"

	"sluice/internal/certificate"
)

// The settings that name certificates.
const (
	HTTPCertificate  = "HTTP_TLS_CERT_FILE"
	AdminCertificate = "ADMIN_TLS_CERT_FILE"

	httpKey  = "HTTP_TLS_KEY_FILE"
	adminKey = "ADMIN_TLS_KEY_FILE"
)

// certificateSettings are those of TLS of our own.
func certificateSettings(c *Config) []setting {
	return []setting{
		{
			name: "HTTP_TLS_CERT_FILE", parse: text(&c.HTTPTLS.Cert),
			help: "file with the certificate (PEM) that HTTP_ADDR is served with over TLS, and with those between it and the CA; " +
				"read again while the api runs; without it HTTP_ADDR is without TLS",
		},
		{name: "HTTP_TLS_KEY_FILE", parse: text(&c.HTTPTLS.Key), help: "file with the key (PEM) of that certificate"},
		{
			name: "ADMIN_TLS_CERT_FILE", parse: text(&c.AdminTLS.Cert),
			help: "file with the certificate (PEM) that ADMIN_ADDR is served with over TLS, and with those between it and the CA; " +
				"read again while the program runs; without it ADMIN_ADDR is without TLS",
		},
		{name: "ADMIN_TLS_KEY_FILE", parse: text(&c.AdminTLS.Key), help: "file with the key (PEM) of that certificate"},
	}
}

// validateTLS checks certificates of the listeners that a program has. A command has none, and may not read the keys.
func (c *Config) validateTLS(program Program) error {
	errs := []error{
		checkPair(program != CLI && program != Worker, HTTPCertificate, httpKey, c.HTTPTLS),
		checkPair(program != CLI, AdminCertificate, adminKey, c.AdminTLS),
	}
	if c.HTTPTLS.Set() && strings.HasPrefix(c.HTTPAddr, "unix:") {
		errs = append(errs, fmt.Errorf("%s is set, but HTTP_ADDR is a Unix socket: the proxy on this machine ends TLS",
			HTTPCertificate))
	}
	return errors.Join(errs...)
}

func checkPair(load bool, cert, key string, files certificate.Files) error {
	switch {
	case files.Cert != "" && files.Key == "":
		return fmt.Errorf("%s is set, and %s is not: a certificate needs its key", cert, key)
	case files.Cert == "" && files.Key != "":
		return fmt.Errorf("%s is set, and %s is not: a key needs its certificate", key, cert)
	case !load || !files.Set():
		return nil
	}
	if _, err := files.Load(); err != nil {
		return fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	return nil
}
