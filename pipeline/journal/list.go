package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/uuid"

	"sluice/pipeline"
)

// Found is one process' journal on this machine's disk.
type Found struct {
	Installation string
	ID           string
	Dir          string
	Files        []string // oldest first
	Live         bool     // its process runs; otherwise the next api that starts takes it over
	Contents
}

// List returns the journals in a directory of ACCEPT_JOURNAL, of every installation. One whose process writes at this
// moment may seem torn. No directory is no journal. Errors: those of the file system.
func List(dir string) ([]Found, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		return nil, err
	}
	var all []Found
	for _, path := range paths {
		id := filepath.Base(path)
		if info, err := os.Stat(path); err != nil || !info.IsDir() || uuid.Validate(id) != nil {
			continue
		}
		found, err := look(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its process has just removed it
		}
		if err != nil {
			return nil, err
		}
		found.Installation, found.ID, found.Dir = filepath.Base(filepath.Dir(path)), id, path
		all = append(all, found)
	}
	return all, nil
}

func look(dir string) (Found, error) {
	lock, err := lockDir(dir, syscall.LOCK_SH)
	live := errors.Is(err, syscall.EWOULDBLOCK)
	if err != nil && !live {
		return Found{}, err
	}
	if !live {
		defer func() { _ = lock.Close() }()
	}
	segments, err := listSegments(dir)
	if err != nil {
		return Found{}, err
	}
	found := Found{Live: live}
	for _, s := range segments {
		contents, err := readSegment(s, anyPartition, func(pipeline.SalePartition, []pipeline.Accept) error { return nil })
		if err != nil {
			return Found{}, err
		}
		found.Files = append(found.Files, s.path)
		found.Accepts += contents.Accepts
		found.Bytes += contents.Bytes
		found.Corrupt += contents.Corrupt
	}
	return found, nil
}
