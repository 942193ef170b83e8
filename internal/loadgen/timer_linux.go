package loadgen

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timer waits with the precision of the kernel's own timers. The runtime's sleep is rounded up to a millisecond when
// nothing else runs, which is longer than many an answer takes; it would be counted as if the server had been slow.
type timer struct {
	fd   int
	file *os.File // reads of it wait in the runtime's poller, like those of a connection
}

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &timer{fd, os.NewFile(uintptr(fd), "timer")}, nil
}

// sleep returns after d, which must be more than 0.
func (t *timer) sleep(d time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	var expirations [8]byte
	_, err := t.file.Read(expirations[:])
	return err
}

func (t *timer) close() error { return t.file.Close() }
