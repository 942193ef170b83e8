// Package archive writes what is dropped from Postgres into files, as JSON lines in the forms of internal/view.
package archive

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sluice/internal/view"
	"sluice/pipeline/retention"
)

const (
	// others is the directory of what belongs to no sale. No sale's id begins like that.
	others = "_other"
	// buffer holds a good part of a batch.
	buffer = 512 << 10
)

// Directory holds the files: <sale>/<batch>-<kind>.jsonl, and _other/<first id>-<kind>.jsonl.
type Directory struct{ path string }

// Open returns the directory of a path, which it makes if it is missing, and checks that files can be written there.
func Open(path string) (*Directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil { // files name buyers
		return nil, err
	}
	probe, err := os.CreateTemp(path, ".probe-*")
	if err != nil {
		return nil, err
	}
	return &Directory{path}, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// Write writes a batch, a file for each kind of rows. Once it returns, the files are on disk under their names,
// complete. They take the place of those that a batch of the same number left, which was not dropped. That goes for all
// kinds of a sale's batch; where there is no sale, each kind has numbers of its own, and the others are left alone.
func (d *Directory) Write(b *retention.Batch) error {
	folder := filepath.Join(d.path, others)
	if b.SaleID != "" {
		folder = filepath.Join(d.path, b.SaleID)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, kind := range []struct {
		name string
		rows []any
	}{
		{"orders", views(b.Orders, view.NewListedOrder)},
		{"payments", views(b.Payments, view.NewPayment)},
		{"refunds", views(b.Refunds, view.NewRefundReport)},
		{"waitlist", views(b.Waitlist, view.NewWaitlistEntry)},
		{"letters", views(b.Letters, view.NewLetter)},
		{"audit-log", views(b.Log, view.NewLogEntry)},
	} {
		if b.SaleID == "" && len(kind.rows) == 0 {
			continue
		}
		name := filepath.Join(folder, fmt.Sprintf("%06d-%s.jsonl", b.Number, kind.name))
		if err := write(name, kind.rows); err != nil {
			return err
		}
	}
	return errors.Join(sync(folder), sync(d.path)) // the names as well
}

// write writes rows under another name first, so that a file that has the name is complete. That name is no other
// writer's: one that stood still, and whose batch another worker has dropped since, must not go on writing into the
// file of that. Without rows there is no file: one that an earlier try left is removed.
func write(name string, rows []any) (err error) {
	if len(rows) == 0 {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	file, err := begin(name)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			_ = os.Remove(file.Name()) // what stays is no file of the batch
		}
	}()
	buffered := bufio.NewWriterSize(file, buffer)
	lines := json.NewEncoder(buffered)
	lines.SetEscapeHTML(false)
	for _, row := range rows {
		if err := lines.Encode(row); err != nil {
			return err
		}
	}
	if err := errors.Join(buffered.Flush(), file.Sync()); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}

// begin opens the file in which what gets a name is written, readable by its owner only: it names buyers.
func begin(name string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.partial")
}

func sync(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func views[T, V any](rows []T, of func(*T) V) []any {
	list := make([]any, len(rows))
	for i := range rows {
		list[i] = of(&rows[i])
	}
	return list
}
