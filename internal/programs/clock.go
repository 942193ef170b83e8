package programs

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// buildLimit bounds the build of programs with clocks. The first one compiles the standard library anew: a minute on a
// small machine.
const buildLimit = 10 * time.Minute

// clockVariable names the file with a process' offset, as in the shim of package localservers: nanoseconds, 8 bytes.
const clockVariable = "SLUICE_CLOCK"

// What time.Now is, and becomes. Durations come from the monotonic clock, and remain what they are.
const (
	nowIs      = "sec, nsec, mono := runtimeNow()\n"
	nowBecomes = nowIs + "\tsec += movedBy()\n"
)

// movedClock is added to package time. Go reads the clock without libc, so nothing that is preloaded could move it.
const movedClock = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var movedFile = mapMoved()

func mapMoved() *int64 {
	path, _ := syscall.Getenv("` + clockVariable + `")
	file, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	page, err := syscall.Mmap(file, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	_ = syscall.Close(file)
	if err != nil {
		return nil
	}
	return (*int64)(unsafe.Pointer(&page[0]))
}

func movedBy() int64 {
	if movedFile == nil {
		return 0
	}
	return atomic.LoadInt64(movedFile) / 1e9
}
`

// Clock moves the wall clock of the processes that run with its Environ. They must be built by BuildWithClock.
type Clock struct{ path string }

// NewClock makes a clock that is right, kept in a directory.
func NewClock(dir, name string) (Clock, error) {
	c := Clock{filepath.Join(dir, name+".clock")}
	return c, os.WriteFile(c.path, make([]byte, 8), 0o600)
}

// Environ is the setting that gives a process this clock.
func (c Clock) Environ() string { return clockVariable + "=" + c.path }

// Set moves the clock: from now on it is so many whole seconds ahead of the machine's, or behind for a negative offset.
func (c Clock) Set(offset time.Duration) error {
	file, err := os.OpenFile(c.path, os.O_WRONLY, 0) // in place: the processes have mapped the file
	if err != nil {
		return err
	}
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset.Truncate(time.Second))), 0)
	return errors.Join(err, file.Close())
}

// BuildWithClock builds a package of main of this module so that a Clock can move what it takes for the time, into a
// directory, and returns the program's path. It needs the Go toolchain. Everything else in the program is as it is.
func BuildWithClock(ctx context.Context, pkg, dir string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	output, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for its sources: %w", err)
	}
	overlay, err := clockOverlay(filepath.Join(strings.TrimSpace(string(output)), "src", "time"), dir)
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, filepath.Base(pkg))
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", program, pkg)
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s with a clock: %w\n%s", pkg, err, output)
	}
	return program, nil
}

// clockOverlay writes what go build is to take in place of files of package time, and returns the list's path.
func clockOverlay(timeDir, dir string) (string, error) {
	source := filepath.Join(timeDir, "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	if bytes.Count(text, []byte(nowIs)) != 1 {
		return "", fmt.Errorf("%s reads the clock in another way than this package knows: look at time.Now", source)
	}
	moved := bytes.Replace(text, []byte(nowIs), []byte(nowBecomes), 1)
	replacements := map[string]string{
		source:                             filepath.Join(dir, "time.go.txt"),
		filepath.Join(timeDir, "moved.go"): filepath.Join(dir, "moved.go.txt"),
	}
	list, err := json.Marshal(map[string]any{"Replace": replacements})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, errors.Join(
		os.WriteFile(replacements[source], moved, 0o600),
		os.WriteFile(filepath.Join(dir, "moved.go.txt"), []byte(movedClock), 0o600),
		os.WriteFile(path, list, 0o600))
}
