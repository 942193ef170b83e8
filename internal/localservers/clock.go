package localservers

import (
	"context"
	_ "embed" // shim/clock.c
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

//go:embed shim/clock.c
var clockSource string

// compileLimit bounds the compilation of the shim, which takes a tenth of a second.
const compileLimit = 30 * time.Second

// errNoClock is returned by SetClock of a server that has the machine's clock.
var errNoClock = errors.New("the server was not started with a clock of its own")

// CanMoveClocks reports whether this machine has what clocks that can be moved are made with.
func CanMoveClocks() bool {
	_, err := exec.LookPath("cc")
	return err == nil && runtime.GOOS == "linux"
}

// giveClock gives a server that is prepared and not started a clock that SetClock can move. A library of ours (see
// shim/clock.c) does that, and a C compiler makes it: ErrNoBinary is in the chain of the error where there is none.
// libfaketime can't be used: it allocates while it asks for the time, and Redis' allocator asks for the time while it
// starts.
func (s *server) giveClock(ctx context.Context) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("a clock of its own: the preloaded library for %s is %w", runtime.GOOS, ErrNoBinary)
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return fmt.Errorf("a C compiler, for a clock of its own, is %w", ErrNoBinary)
	}
	source, library := filepath.Join(s.dir, "clock.c"), filepath.Join(s.dir, "clock.so")
	s.clock = filepath.Join(s.dir, "clock")
	if err := os.WriteFile(source, []byte(clockSource), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, compileLimit)
	defer cancel()
	output, err := exec.CommandContext(ctx, compiler, "-shared", "-fPIC", "-O2", "-o", library, source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compile %s: %w; the output ends:\n%s", source, err, lastLines(string(output)))
	}
	if err := writeFor(s.spec.account, s.clock, string(make([]byte, 8))); err != nil {
		return err
	}
	if s.spec.account.stepDown {
		if err := os.Chown(library, s.spec.account.uid, s.spec.account.gid); err != nil {
			return err
		}
	}
	s.spec.env = append(s.spec.env, "LD_PRELOAD="+library, "SLUICE_CLOCK="+s.clock)
	return nil
}

// SetClock moves the server's wall clock: from now on it is this much ahead of the machine's, or behind for a negative
// offset. It has an effect at once, on a server that was started with a clock of its own, and remains over restarts.
// The server's monotonic clock goes on as before.
func (s *server) SetClock(offset time.Duration) error {
	if s.clock == "" {
		return fmt.Errorf("%s: %w", s.spec.name, errNoClock)
	}
	file, err := os.OpenFile(s.clock, os.O_WRONLY, 0) // in place: the server has mapped the file
	if err != nil {
		return err
	}
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset)), 0)
	return errors.Join(err, file.Close())
}

// StartRedisWithClock is StartRedis for a server whose clock can be moved by SetClock, and so can its replicas'.
func StartRedisWithClock(ctx context.Context, config ...string) (*Redis, error) {
	return startRedisAlone(ctx, settings{config: config, clock: true})
}

// StartPostgresWithClock is StartPostgres for a server whose clock can be moved by SetClock.
func StartPostgresWithClock(ctx context.Context, config ...string) (*Postgres, error) {
	return startPostgresAlone(ctx, settings{config: config, clock: true})
}

// StartWithClocks is Start for servers whose clocks can be moved by SetClock.
func StartWithClocks(ctx context.Context) (*Servers, error) { return start(ctx, settings{clock: true}) }

// settings say how a server is started.
type settings struct {
	config []string // lines that are appended to our own
	clock  bool     // a clock of its own
	citus  bool     // a Citus, where it says Postgres
}
