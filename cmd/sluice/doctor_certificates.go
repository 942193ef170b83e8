package main

import (
	"fmt"
	"os"
	"time"

	"sluice/internal/certificate"
	"sluice/internal/config"
)

// certificates checks those that api and workers show, where this command has their settings. It reads no key: that is
// for the programs, which say at their start whether it fits.
func (d *doctor) certificates() {
	for _, c := range []struct {
		check string
		files certificate.Files
	}{{config.HTTPCertificate, d.cfg.HTTPTLS}, {config.AdminCertificate, d.cfg.AdminTLS}} {
		if c.files.Set() {
			d.certificate(c.check, c.files.Cert)
		}
	}
}

func (d *doctor) certificate(check, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		d.failed(check, err, "run this where the certificate is, as a user who may read it, or leave "+check+" unset here")
		return
	}
	leaf, err := certificate.Leaf(text)
	if err != nil {
		d.failed(check, err, "write the certificate in PEM into "+path)
		return
	}
	days := certificate.DaysLeft(leaf)
	d.note(days > certificate.WarnDays, check,
		fmt.Sprintf("valid until %s, %d days left", leaf.NotAfter.UTC().Format(time.DateOnly), days),
		"renew it: "+path+" is read again without a restart; see why it was not renewed by itself")
}
