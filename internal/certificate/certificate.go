// Package certificate reads the certificates that our own listeners show, and replaces them while the listeners serve.
package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"
)

const (
	// WarnDays is how many days before its end a certificate is worth a warning: what renews certificates by itself does
	// so at a third of their life, which is 30 days of 90, so it has failed for two weeks.
	WarnDays = 14
	// maxBytes bounds a file: a chain has some 10 KB.
	maxBytes = 256 << 10
)

// Files name a server's certificate, followed by those between it and the CA, and its key, both in PEM.
type Files struct{ Cert, Key string }

// Set reports whether there are any.
func (f Files) Set() bool { return f.Cert != "" }

// Read returns what both files have. Its error repeats nothing of it.
func (f Files) Read() (string, error) {
	cert, err := readWhole(f.Cert)
	if err != nil {
		return "", err
	}
	key, err := readWhole(f.Key)
	return string(cert) + "\x00" + string(key), err
}

// readWhole returns what a file has, unless it ends in the middle of a block: somebody is writing it.
func readWhole(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxBytes) { // a pipe could hold its reader for ever
		err = fmt.Errorf("%s is no file of at most %d KiB", path, maxBytes>>10)
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	blocks, rest := -1, text
	for block := new(pem.Block); block != nil; blocks++ {
		block, rest = pem.Decode(rest)
	}
	if blocks == 0 || bytes.Contains(rest, []byte("-----")) {
		return nil, fmt.Errorf("%s is no whole file in PEM", path)
	}
	return text, nil
}

// Parse makes a certificate of what Read returned. Its error repeats nothing of it.
func Parse(text string) (*tls.Certificate, error) {
	certPEM, keyPEM, _ := bytes.Cut([]byte(text), []byte{0})
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, errors.New("certificate and key are no pair: " + err.Error())
	}
	return &pair, nil
}

// Load reads a pair. One that has expired is a pair, too: a program that did not start because of it would be away for
// everybody, not only for who looks at the date.
func (f Files) Load() (*tls.Certificate, error) {
	text, err := f.Read()
	if err != nil {
		return nil, err
	}
	return Parse(text)
}

// Leaf is the first certificate of a text in PEM: the server's own.
func Leaf(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("it does not begin with a certificate in PEM (-----BEGIN CERTIFICATE-----)")
	}
	return x509.ParseCertificate(block.Bytes)
}

// DaysLeft is how many whole days a certificate is valid from now; less than 0 after its end.
func DaysLeft(c *x509.Certificate) int {
	return int(math.Floor(time.Until(c.NotAfter).Hours() / 24))
}

// Current is the certificate that a listener shows to who connects now. It may be used from many goroutines at once.
type Current struct {
	pair atomic.Pointer[tls.Certificate]
}

// Open returns the pair that Read returned, to be shown.
func Open(text string) (*Current, error) {
	pair, err := Parse(text)
	c := &Current{}
	c.pair.Store(pair)
	return c, err
}

// Replace shows another one from now on, unless that has expired. Connections that there are keep theirs.
func (c *Current) Replace(text string) error {
	pair, err := Parse(text)
	if err != nil {
		return err
	}
	if end := pair.Leaf.NotAfter; time.Now().After(end) {
		return fmt.Errorf("the certificate has expired (%s)", end.UTC().Format(time.RFC3339))
	}
	c.pair.Store(pair)
	return nil
}

// DaysLeft is that of the certificate which is shown.
func (c *Current) DaysLeft() int { return DaysLeft(c.pair.Load().Leaf) }

// Config is that of a listener: TLS 1.2 or later with what Go chooses. It offers HTTP/1.1 only: with HTTP/2, one
// connection has many requests, and the limits of connections would not bound what a client takes.
func (c *Current) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Load(), nil },
	}
}
