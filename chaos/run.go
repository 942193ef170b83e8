package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Run plays a whole run and tells it to out as it goes. The report is there whenever the run was; an error says why it could
// not be played or proven. Everything that was started is gone when it returns.
func Run(ctx context.Context, o Options, out io.Writer) (r *Report, err error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	say("chaos: seed %d, %s of faults", o.Seed, o.Duration)
	s, err := openStage(ctx, o, say)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	s.play(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s.report(ctx)
}
