package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"sluice/internal/process"
	"sluice/pipeline"
)

// maxErrorBytes bounds an error message: a longer one is a dump, not a sentence.
const maxErrorBytes = 600

// errFound ends a command that has printed what it found wrong.
var errFound = errors.New("found wrong")

// ended is the exit code of a command that has printed all it had to say, also about an error.
type ended int

func (e ended) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usage is an error in the command as it was typed.
type usage struct{ text string }

func (u usage) Error() string { return u.text }

func usagef(format string, args ...any) error { return usage{fmt.Sprintf(format, args...)} }

// usageError says what is wrong with the arguments, and where to look.
func usageError(err error) error {
	command := "sluice"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if path := parse.Context.Command(); path != "" {
			command += " " + commandWords(path)
		}
	}
	return usagef("%s; see %s --help", oneLine(err.Error()), command)
}

// commandWords leaves the arguments out of a kong command path: "sale show <sale>" is the command "sale show".
func commandWords(path string) string {
	words := strings.Fields(path)
	for i, word := range words {
		if strings.HasPrefix(word, "<") {
			words = words[:i]
			break
		}
	}
	return strings.Join(words, " ")
}

// advise adds what to do to an error of some kind, and leaves others as they are.
func advise(err error, kind pipeline.Kind, advice string) error {
	var e *pipeline.Error
	if !errors.As(err, &e) || e.Kind != kind {
		return err
	}
	return &pipeline.Error{Kind: kind, Message: e.Message + "; " + advice, Cause: e.Cause}
}

// unknownSale is what to do about a sale that does not exist.
func unknownSale(err error) error {
	return advise(err, pipeline.KindNotFound, "sluice sale ls shows all of them")
}

// report prints an error as one sentence and returns the exit code.
func report(w io.Writer, err error) int {
	var code ended
	switch {
	case err == nil:
		return process.ExitFine
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, errFound):
		return process.ExitFault
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(w, "sluice: interrupted")
		return process.ExitFault
	}
	fmt.Fprintln(w, "sluice: "+sentence(err))
	return exitCode(err)
}

// exitCode separates wrong use from failure. To name what does not exist, or to ask for what the current state does not
// allow, is wrong use.
func exitCode(err error) int {
	var u usage
	if errors.As(err, &u) {
		return process.ExitUsage
	}
	switch pipeline.KindOf(err) {
	case pipeline.KindInvalid, pipeline.KindNotFound, pipeline.KindConflict:
		return process.ExitUsage
	default:
		return process.ExitFault
	}
}

// sentence is an error in one line: what went wrong and, from a store, its deepest cause.
func sentence(err error) string {
	var e *pipeline.Error
	var u usage
	text := err.Error()
	switch {
	case errors.As(err, &u):
		text = u.text
	case errors.As(err, &e) && e.Cause != nil && e.Kind != pipeline.KindConflict:
		text = e.Message + " (" + deepest(e.Cause).Error() + ")"
	case errors.As(err, &e):
		text = e.Message
	}
	return oneLine(text)
}

// deepest follows a chain of causes to its end; where it forks, the first branch is the cause.
func deepest(err error) error {
	for {
		switch wrapped := err.(type) { //nolint:errorlint // this walks the chain itself
		case interface{ Unwrap() error }:
			next := wrapped.Unwrap()
			if next == nil {
				return err
			}
			err = next
		case interface{ Unwrap() []error }:
			branches := wrapped.Unwrap()
			if len(branches) == 0 {
				return err
			}
			err = branches[0]
		default:
			return err
		}
	}
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxErrorBytes {
		text = text[:maxErrorBytes] + "…"
	}
	return text
}
