package localservers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// appendOnlyDir is where Redis (from 7.0) and Valkey keep the append-only file and its manifest.
const appendOnlyDir = "appendonlydir"

// Saved is a copy of a Redis' append-only files, as a backup or a snapshot of the disk would contain it.
type Saved struct{ dir string }

// SaveData copies the append-only files as they are now. The server may run: a write in progress may then be cut off at
// the end of the copy, which Redis repairs when it loads it.
func (r *Redis) SaveData() (Saved, error) {
	saved := Saved{filepath.Join(r.sandbox.dir, fmt.Sprintf("%s.saved-%d", r.spec.name, r.saves.Add(1)))}
	return saved, os.CopyFS(saved.dir, os.DirFS(filepath.Join(r.dir, appendOnlyDir)))
}

// RestoreData replaces the append-only files by an earlier copy: at the next Restart the server is back where it was
// then, without anything that happened since. The server must be stopped or killed; a copy may be restored often, and
// to another Redis of the same sandbox.
func (r *Redis) RestoreData(saved Saved) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running() {
		return fmt.Errorf("restore the data of %s: it is running; stop or kill it first", r.spec.name)
	}
	dir := filepath.Join(r.dir, appendOnlyDir)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return errors.Join(os.CopyFS(dir, os.DirFS(saved.dir)), r.spec.account.own(dir))
}

// own makes the account the owner of everything below a path.
func (a account) own(path string) error {
	if !a.stepDown {
		return nil
	}
	return filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, a.uid, a.gid)
	})
}
