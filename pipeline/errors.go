package pipeline

import (
	"errors"
	"fmt"
)

// Kind says what an error means to its receiver. Every boundary (HTTP, CLI, worker loop) decides by kind alone.
type Kind string

// The kinds. Expected business outcomes (sold out, already ordered) are results and never errors.
const (
	KindInvalid     Kind = "invalid"     // the caller's input breaks a rule; repeating it can't help
	KindNotFound    Kind = "not-found"   // no such sale or order, or not the caller's
	KindConflict    Kind = "conflict"    // the state of things forbids it
	KindOverloaded  Kind = "overloaded"  // a named limit is reached; try again later
	KindUnavailable Kind = "unavailable" // Redis or Postgres did not answer in time; try again later
	KindNotLoaded   Kind = "not-loaded"  // the sale is not in Redis (never read as sold out); try again later
	KindData        Kind = "data"        // a store refuses these very values, and always will
)

// Error is the one error type of the pipeline. Message is written for the person who caused it; Cause is for the log.
type Error struct {
	Kind    Kind
	Message string
	Cause   error
}

func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return e.Message + ": " + e.Cause.Error()
}

func (e *Error) Unwrap() error { return e.Cause }

// Errorf makes an Error of a kind, without a cause; see Wrap for one with a cause.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Wrap gives a cause a kind and a message that is safe to show; the cause goes to logs only.
func Wrap(kind Kind, cause error, message string) *Error {
	return &Error{Kind: kind, Message: message, Cause: cause}
}

// KindOf returns the kind of the first Error in the chain, or "" when there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}
