package db

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"sluice/pipeline"
)

const (
	maxPasswordBytes = 128 // libpq and pgx take more, but no person or vault makes one
	// What Postgres itself uses for password_encryption = scram-sha-256, its default.
	scramIterations, scramSaltBytes = 4096, 16
)

func validPasswords(passwords [3]string) error {
	for i, password := range passwords {
		strange := strings.ContainsFunc(password, func(c rune) bool { return c <= ' ' || c >= 0x7f })
		if strange || len(password) > maxPasswordBytes {
			return pipeline.Errorf(pipeline.KindInvalid, "the password of the %s: use 1 to %d printable ASCII characters, no spaces",
				[]string{"api", "worker", "operator"}[i], maxPasswordBytes)
		}
	}
	return nil
}

// scramVerifier is what Postgres stores of a password (src/common/scram-common.c; RFC 5802): it can check one, and does
// not tell it. A password in a statement would stand in the server's log if the statement failed. ASCII needs no
// SASLprep.
func scramVerifier(password string) string {
	salt := make([]byte, scramSaltBytes)
	_, _ = rand.Read(salt) // never fails
	salted, err := pbkdf2.Key(sha256.New, password, salt, scramIterations, sha256.Size)
	if err != nil {
		panic(err) // only for lengths that FIPS forbids
	}
	stored := sha256.Sum256(keyed(salted, "Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", scramIterations, encode(salt), encode(stored[:]),
		encode(keyed(salted, "Server Key")))
}

func keyed(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
