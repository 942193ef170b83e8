package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"sluice/internal/localservers"
)

// SmallDisk is a directory on a disk of its own.
type SmallDisk struct {
	Dir string
	t   testing.TB
}

// SmallPostgresDisk makes a disk of some bytes that a private Postgres may write to, until the test ends. Where this
// process may not mount one, which takes the rights of root, it returns false.
func SmallPostgresDisk(t testing.TB, p *localservers.Postgres, bytes int64) (*SmallDisk, bool) {
	t.Helper()
	data, err := os.Stat(filepath.Join(p.Dir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	owner := data.Sys().(*syscall.Stat_t)
	disk := &SmallDisk{Dir: filepath.Join(p.Dir(), "small"), t: t}
	if err := os.Mkdir(disk.Dir, 0o700); err != nil {
		return nil, false
	}
	options := fmt.Sprintf("size=%d,mode=0700,uid=%d,gid=%d", bytes, owner.Uid, owner.Gid)
	if exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", disk.Dir).Run() != nil {
		return nil, false
	}
	t.Cleanup(func() { disk.tool("umount", "--lazy", disk.Dir) })
	return disk, true
}

// Grow gives the disk so many bytes in all.
func (d *SmallDisk) Grow(bytes int64) {
	d.t.Helper()
	d.tool("mount", "-o", fmt.Sprintf("remount,size=%d", bytes), d.Dir)
}

func (d *SmallDisk) tool(name string, args ...string) {
	d.t.Helper()
	if output, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		d.t.Errorf("%s %v: %v: %s", name, args, err, output)
	}
}
