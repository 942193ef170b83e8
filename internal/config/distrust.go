package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// Distrust says why a server's certificate is not trusted and what to do about it, or returns "" where an error has
// another cause. authority says where the CA's file is set. The text repeats nothing of a URL.
func Distrust(err error, server, authority string) string {
	var unverified *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &noTLS):
		return server + " does not speak TLS at this port: use its TLS port, or an address without TLS"
	case !errors.As(err, &unverified):
		return ""
	case errors.As(err, &name):
		return fmt.Sprintf("%s has a certificate for another name (%s): use a name that the certificate has", server,
			unverified.Err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("%s has a certificate that is not valid now (%s): give it another one, or set the clock", server,
			unverified.Err)
	case errors.As(err, &unknown):
		return fmt.Sprintf("%s has a certificate of an unknown CA (%s): name the file with the CA's certificate in %s", server,
			unverified.Err, authority)
	default:
		return fmt.Sprintf("%s has a certificate that can't be trusted (%s): give it another one", server, unverified.Err)
	}
}

// Where the CA of each server is set, for Distrust.
const (
	RedisAuthority    = "REDIS_CA_FILE"
	PostgresAuthority = "the parameter sslrootcert of DATABASE_URL"
)
