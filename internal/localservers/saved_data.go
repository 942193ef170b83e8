package localservers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// appendOnlyDir is where Redis (from 7.0) and Valkey keep the append-only file and its manifest.
	appendOnlyDir = "appendonlydir"
	// clusterDir is where Postgres keeps everything.
	clusterDir = "data"
)

// Saved is a copy of a server's data, as a backup or a snapshot of the disk would contain it.
type Saved struct{ dir string }

// SaveData copies the append-only files as they are now. The server may run: a write in progress may then be cut off at
// the end of the copy, which Redis repairs when it loads it.
func (r *Redis) SaveData() (Saved, error) { return r.save(appendOnlyDir) }

// RestoreData replaces the append-only files by an earlier copy: at the next Restart the server is back where it was
// then, without anything that happened since. The server must be stopped or killed; a copy may be restored often, and
// to another Redis of the same sandbox.
func (r *Redis) RestoreData(saved Saved) error { return r.restore(appendOnlyDir, saved) }

// SaveData copies the database as it is on disk. The server must be stopped or killed: the copy of one that runs would
// be of no use.
func (p *Postgres) SaveData() (Saved, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return Saved{}, fmt.Errorf("save the data of %s: it is running; stop or kill it first", p.spec.name)
	}
	return p.save(clusterDir)
}

// RestoreData replaces the database by an earlier copy: at the next Restart the server is back where it was then,
// without anything that was committed since. The server must be stopped or killed; a copy may be restored often.
func (p *Postgres) RestoreData(saved Saved) error { return p.restore(clusterDir, saved) }

func (s *server) save(folder string) (Saved, error) {
	saved := Saved{filepath.Join(s.sandbox.dir, fmt.Sprintf("%s.saved-%d", s.spec.name, s.saves.Add(1)))}
	return saved, os.CopyFS(saved.dir, os.DirFS(filepath.Join(s.dir, folder)))
}

func (s *server) restore(folder string, saved Saved) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		return fmt.Errorf("restore the data of %s: it is running; stop or kill it first", s.spec.name)
	}
	dir := filepath.Join(s.dir, folder)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	// Postgres starts from no directory that others may read.
	return errors.Join(os.CopyFS(dir, os.DirFS(saved.dir)), os.Chmod(dir, 0o700), s.spec.account.own(dir))
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
