package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"sluice/pipeline"
)

// home is the directory of one process' journal. Only the holder of the lock on its lock file writes and deletes there;
// the lock ends with the process, however that dies.
type home struct {
	id       string // names the journal in Postgres
	dir      string
	lock     *os.File
	segments []*segment // oldest first
	numbers  uint64     // how many segments this process has begun in it
}

const lockName = "lock"

// unnamedPrefix begins the name of a directory that is being made. It never holds a journal.
const unnamedPrefix = ".new-"

// A directory that is locked is tried so often before its process counts as living.
const (
	adoptTries = 3
	adoptWait  = 30 * time.Millisecond
)

// installationDir is where the journals of an installation are.
func (j *Journal) installationDir() string { return filepath.Join(j.opts.Dir, j.opts.Installation) }

func newID() string { return uuid.NewString() }

// newHome makes a directory for this process. It gets its name when it is locked, so that no other process takes it for
// one that was left behind.
func (j *Journal) newHome() (*home, error) {
	base, id := j.installationDir(), newID() // a new one for each try: another process may have the last one by now
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, err
	}
	unnamed := filepath.Join(base, unnamedPrefix+newID())
	if err := os.Mkdir(unnamed, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDir(unnamed, syscall.LOCK_EX)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(unnamed))
	}
	dir := filepath.Join(base, id)
	if err := os.Rename(unnamed, dir); err != nil {
		return nil, errors.Join(err, lock.Close(), os.RemoveAll(unnamed))
	}
	return &home{id: id, dir: dir, lock: lock}, nil
}

// adopt takes over the directories whose processes are dead. One that can't be read is logged and left for the next
// process.
func (j *Journal) adopt() error {
	entries, err := os.ReadDir(j.installationDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(j.installationDir(), e.Name())
		if !e.IsDir() || slices.ContainsFunc(j.homes, func(h *home) bool { return h.dir == dir }) {
			continue
		}
		if strings.HasPrefix(e.Name(), unnamedPrefix) {
			removeUnnamed(dir)
		}
		if uuid.Validate(e.Name()) != nil {
			continue
		}
		h, err := adoptDir(dir, e.Name())
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
			continue // its process lives, or has just removed it
		}
		if err != nil {
			j.opts.Log.Error("an accept journal that was left behind can't be read", "dir", dir, "error", err)
			continue
		}
		j.homes = append(j.homes, h)
		j.examine(h)
	}
	return nil
}

// removeUnnamed removes a directory whose process died before it gave it a name.
func removeUnnamed(dir string) {
	lock, err := lockDir(dir, syscall.LOCK_EX)
	if err != nil {
		return // it is being made
	}
	_ = os.RemoveAll(dir)
	_ = lock.Close()
}

// examine says what a journal that was taken over holds.
func (j *Journal) examine(h *home) {
	accepts := 0
	for _, s := range h.segments {
		found, err := readSegment(s, anyPartition, func(pipeline.SalePartition, []pipeline.Accept) error { return nil })
		s.accepts = found.Accepts
		accepts += found.Accepts
		j.opts.Metrics.corrupt.Add(float64(found.Corrupt))
		if err != nil || found.Corrupt > 0 {
			j.opts.Log.Error("a file of an accept journal is torn or corrupt; what is whole is used",
				"file", s.path, "accepts", found.Accepts, "bytes_passed_over", found.Corrupt, "error", err)
		}
	}
	if len(h.segments) > 0 {
		j.tookOver.Store(true)
		j.opts.Log.Info("took over the accept journal of a process that has ended", "dir", h.dir, "accepts", accepts)
	}
}

func adoptDir(dir, name string) (*home, error) {
	lock, err := lockDir(dir, syscall.LOCK_EX)
	for range adoptTries { // somebody may just be looking at it, see List
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		time.Sleep(adoptWait)
		lock, err = lockDir(dir, syscall.LOCK_EX)
	}
	if err != nil {
		return nil, err
	}
	segments, err := listSegments(dir)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &home{id: name, dir: dir, lock: lock, segments: segments}, nil
}

// lockDir takes the lock of a directory, LOCK_EX or LOCK_SH. Error: EWOULDBLOCK where a living process has it.
func lockDir(dir string, how int) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), how|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// nextNumber numbers the segments of the own journal, which begins without any.
func (h *home) nextNumber() uint64 {
	h.numbers++
	return h.numbers
}

// drop deletes segments. One that can't be deleted is tried again later.
func (h *home) drop(over func(*segment) bool) {
	for _, s := range h.segments {
		if !over(s) {
			continue
		}
		remove := os.Remove
		if s.corrupt { // kept for people: a later version may read it, or what is on the disk elsewhere
			remove = func(path string) error { return os.Rename(path, path+".corrupt") }
		}
		if err := remove(s.path); err == nil || errors.Is(err, fs.ErrNotExist) {
			h.segments = without(h.segments, s)
		}
	}
}

// close gives the directory up, and removes it where it holds nothing.
func (h *home) close() error {
	if len(h.segments) == 0 {
		_ = os.Remove(filepath.Join(h.dir, lockName))
		_ = os.Remove(h.dir) // what is not empty remains
	}
	return h.lock.Close()
}

// ready makes the process' directory and the segment to write to, where they are missing.
func (j *Journal) ready() error {
	if j.own == nil {
		own, err := j.newHome()
		if err != nil {
			return err
		}
		j.own, j.id = own, own.id
		j.homes = append([]*home{own}, j.homes...)
	}
	if j.file != nil {
		return nil
	}
	file, s, err := createSegment(j.own.dir, j.own.nextNumber(), j.opts.Fsync)
	if err != nil {
		return err
	}
	j.file, j.current, j.began = file, s, time.Now()
	j.own.segments = append(j.own.segments, s)
	return nil
}
