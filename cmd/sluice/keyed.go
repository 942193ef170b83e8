package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"sluice/internal/process"
	"sluice/pipeline"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/idempotency"
)

// keyed is the flag of commands that change something.
type keyed struct {
	IdempotencyKey *string `name:"idempotency-key" placeholder:"KEY" json:"-" help:"Do it once, however often this very command is given with this key within 48 hours; a new UUID, for instance."`
}

func (k *keyed) key() *string { return k.IdempotencyKey }

// explained is keyed, with a flag that says why.
type explained struct {
	keyed
	Reason string `placeholder:"TEXT" help:"Why, for the audit log; at most 1000 bytes."`
}

func (e *explained) why() string { return e.Reason }

// secretive is a keyed command that prints a secret. What it prints is not kept: the same command finds what the first
// one made, and prints that.
type secretive struct{ keyed }

func (s *secretive) secret() {}

// fixed refuses a time that depends on when the command is given: with a key, a second try would mean another time.
func (k *keyed) fixed(until string) error {
	if k.IdempotencyKey != nil && strings.HasPrefix(until, "+") {
		return usagef("--until %s: with --idempotency-key, give the time as RFC 3339, because +1h is another time in each try",
			until)
	}
	return nil
}

// printed is what a command left, as it is kept for a key.
type printed struct {
	Out string `json:"out"`
	Err string `json:"err"`
}

// run runs the command that was typed. With a key it is done once: the same command prints again what the first one
// did, and ends with its exit code.
func (a *app) run(command *kong.Context) error {
	explained, ok := command.Selected().Target.Addr().Interface().(interface{ why() string })
	if ok && explained.why() != "" {
		if err := pipeline.ValidateReason(explained.why()); err != nil {
			return err
		}
		a.ctx = auditlog.Because(a.ctx, explained.why())
	}
	typed, ok := command.Selected().Target.Addr().Interface().(interface{ key() *string })
	if !ok || typed.key() == nil {
		return command.Run(a)
	}
	if err := idempotency.ValidateKey(*typed.key()); err != nil {
		return usagef("--idempotency-key: %s", err)
	}
	what, err := json.Marshal(typed)
	if err != nil {
		return err
	}
	request := idempotency.NewRequest(*typed.key(), "cli", commandWords(command.Command()), string(what),
		strconv.FormatBool(a.json))
	return a.withPostgres(func(s *stores) error {
		service := idempotency.New(s.postgres, process.NewLogger(a.err, s.cfg))
		answer, _, err := service.Once(a.ctx, request,
			func(ctx context.Context) (idempotency.Answer, idempotency.Verdict, error) {
				answer, verdict, err := a.recorded(ctx, command)
				if _, secret := typed.(interface{ secret() }); secret && answer.Status == process.ExitFine {
					verdict = idempotency.Repeat
				}
				return answer, verdict, err
			})
		if errors.Is(err, idempotency.ErrReused) {
			return usagef("--idempotency-key: %s", err)
		}
		if err != nil {
			return err
		}
		var left printed
		if err := json.Unmarshal(answer.Body, &left); err != nil {
			return err
		}
		_, err = a.out.Write([]byte(left.Out))
		_, errErr := a.err.Write([]byte(left.Err))
		return errors.Join(err, errErr, ended(answer.Status))
	})
}

// recorded runs a command and returns what it would have printed.
func (a *app) recorded(
	ctx context.Context, command *kong.Context,
) (idempotency.Answer, idempotency.Verdict, error) {
	var out, errOut bytes.Buffer
	quiet := *a
	quiet.ctx, quiet.out, quiet.err = ctx, &out, &errOut
	result := command.Run(&quiet)
	code := report(&errOut, result)
	body, err := json.Marshal(printed{out.String(), errOut.String()})
	return idempotency.Answer{Status: code, Body: body}, verdictOf(result), err
}

// verdictOf says what becomes of a key after a command. What was found wrong, does not exist or is forbidden now is its
// answer; what a store did not do, or what waits for another change, may be tried again; what was typed wrong leaves
// the key free.
func verdictOf(err error) idempotency.Verdict {
	var u usage
	switch kind := pipeline.KindOf(err); {
	case idempotency.IsForNow(err):
		return idempotency.Repeat
	case err == nil, errors.Is(err, errFound), kind == pipeline.KindNotFound, kind == pipeline.KindConflict:
		return idempotency.Final
	case errors.As(err, &u), kind == pipeline.KindInvalid:
		return idempotency.Forget
	default:
		return idempotency.Repeat
	}
}
