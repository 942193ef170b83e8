package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"sluice/pipeline"
)

func TestTheKindOfAnError(t *testing.T) {
	t.Parallel()
	inner := pipeline.Wrap(pipeline.KindData, context.Canceled, "inner")
	for _, test := range []struct {
		err  error
		want pipeline.Kind
	}{
		{nil, ""},
		{errors.New("foreign"), ""},
		{inner, pipeline.KindData},
		{fmt.Errorf("wrapped: %w", inner), pipeline.KindData},
		{pipeline.Wrap(pipeline.KindUnavailable, inner, "outer"), pipeline.KindUnavailable}, // the outermost one decides
		{errors.Join(errors.New("foreign"), pipeline.Errorf(pipeline.KindNotLoaded, "a"), inner), pipeline.KindNotLoaded},
	} {
		if got := pipeline.KindOf(test.err); got != test.want {
			t.Errorf("%v: got %q, want %q", test.err, got, test.want)
		}
	}
	if !errors.Is(fmt.Errorf("wrapped: %w", inner), context.Canceled) {
		t.Error("the cause is not in the chain")
	}
}

func TestAnErrorShowsItsMessageAndLogsItsCause(t *testing.T) {
	t.Parallel()
	err := pipeline.Wrap(pipeline.KindUnavailable, errors.New("password=secret"), "Postgres did not answer")
	if err.Message != "Postgres did not answer" {
		t.Errorf("got message %q", err.Message)
	}
	if got := err.Error(); got != "Postgres did not answer: password=secret" {
		t.Errorf("got %q for the log", got)
	}
	if got := pipeline.Errorf(pipeline.KindInvalid, "%d is not 1", 2).Error(); got != "2 is not 1" {
		t.Errorf("got %q", got)
	}
}
