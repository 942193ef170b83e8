package auth

import (
	"errors"
)

// Refused is the error about a request that does not prove who sent it (401), with how it could.
type Refused struct {
	Challenge string // the WWW-Authenticate header (RFC 9110, section 11.6.1)
	Detail    string // for the client
}

func (e *Refused) Error() string { return "unauthenticated: " + e.Detail }

// BadHeader is the error about a header that breaks a rule (400).
type BadHeader struct {
	Name   string
	Detail string // for the client: the rule
}

func (e *BadHeader) Error() string { return e.Name + ": " + e.Detail }

// ErrKeysUnavailable is in the chain of the errors (pipeline.KindUnavailable) about keys that could not be fetched.
var ErrKeysUnavailable = errors.New("the keys that tokens are verified with can't be fetched")
