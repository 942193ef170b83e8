package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/pipeline"
)

const (
	// segmentBytes is the size at which a new segment begins: some 50,000 accepts, so that what is persisted is deleted
	// soon, and a segment is read in milliseconds.
	segmentBytes = 8 << 20
	// maxSegment bounds a file that is read as a segment.
	maxSegment = 4 * segmentBytes

	segmentSuffix = ".journal"
	// segmentHead is how each segment begins; the number is the version of the format.
	segmentHead = "sluice accept journal 1\n"
)

// segment is one file of a journal.
type segment struct {
	path string
	size int64 // up to the end of the last record that was written whole

	accepts int       // that it holds
	ended   time.Time // when the last was appended, at the latest; zero: by a process before this one

	corrupt bool // a part of it can't be read; set before it is dropped
}

// segmentPath names the files of a directory in the order in which they were written.
func segmentPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016d%s", number, segmentSuffix))
}

// createSegment makes a new file, and fails where one is there. With sync, its name is on the disk as well.
func createSegment(dir string, number uint64, sync bool) (*os.File, *segment, error) {
	path := segmentPath(dir, number)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if _, err := file.WriteString(segmentHead); err != nil {
		return nil, nil, errors.Join(err, file.Close(), os.Remove(path))
	}
	if sync {
		if err := syncDirs(dir, filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))); err != nil {
			return nil, nil, errors.Join(err, file.Close(), os.Remove(path))
		}
	}
	return file, &segment{path: path, size: int64(len(segmentHead))}, nil
}

// listSegments returns the segments of a directory, oldest first.
func listSegments(dir string) ([]*segment, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	var segments []*segment
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), segmentSuffix) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		segments = append(segments, &segment{path: filepath.Join(dir, e.Name()), size: info.Size()})
	}
	return segments, nil
}

// Contents are what a file of a journal holds.
type Contents struct {
	Accepts int   // that can be read
	Bytes   int64 // of the file
	Corrupt int64 // bytes of it that are no whole record: a torn end, or damage in the middle
}

// ReadFile calls each for the batches in one file of a journal, in the order in which they were written. What is torn
// or corrupt is passed over and counted. Errors: KindInvalid for a file that is no journal, those of the file system,
// and those of each.
func ReadFile(path string, each func(pipeline.SalePartition, []pipeline.Accept) error) (Contents, error) {
	found, err := readSegment(&segment{path: path, size: maxSegment}, anyPartition, each)
	if err == nil && found.Accepts == 0 && found.Corrupt == found.Bytes && found.Bytes > 0 {
		return found, pipeline.Errorf(pipeline.KindInvalid, "%s is no file of a journal", path)
	}
	return found, err
}

func anyPartition(pipeline.Partition) bool { return true }

// readSegment reads the batches of some partitions from a segment, up to its size. A segment that is gone is empty: it
// was deleted because nothing in it is needed. One that does not begin as it should is searched for whole records all
// the same.
func readSegment(
	s *segment, wanted func(pipeline.Partition) bool, each func(pipeline.SalePartition, []pipeline.Accept) error,
) (Contents, error) {
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) && s.size != maxSegment {
		return Contents{}, nil
	}
	if err != nil {
		return Contents{}, err
	}
	if info.Size() > maxSegment {
		return Contents{}, pipeline.Errorf(pipeline.KindInvalid, "%s has %d bytes; no file of a journal has more than %d",
			s.path, info.Size(), maxSegment)
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		return Contents{}, err
	}
	data = data[:min(int64(len(data)), s.size)]
	found := Contents{Bytes: int64(len(data))}
	rest, _ := bytes.CutPrefix(data, []byte(segmentHead))
	if strings.HasPrefix(segmentHead, string(data)) { // it was just made
		return found, nil
	}
	for len(rest) > 0 {
		payload, length, err := nextRecord(rest)
		var at pipeline.SalePartition
		var accepts []pipeline.Accept
		if err == nil && !wanted(partitionOf(payload)) {
			rest = rest[length:]
			continue
		}
		if err == nil {
			at, accepts, err = decodePayload(payload)
		}
		if err != nil {
			skipped := nextMagic(rest)
			found.Corrupt += int64(skipped)
			rest = rest[skipped:]
			continue
		}
		found.Accepts += len(accepts)
		if err := each(at, accepts); err != nil {
			return found, err
		}
		rest = rest[length:]
	}
	return found, nil
}

// nextMagic returns how many bytes lie before what may be the next record.
func nextMagic(data []byte) int {
	magic := binary.LittleEndian.AppendUint32(nil, recordMagic)
	if i := bytes.Index(data[1:], magic); i >= 0 {
		return 1 + i
	}
	return len(data)
}

// syncDirs flushes the entries of directories to the disk.
func syncDirs(dirs ...string) error {
	for _, dir := range dirs {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}
	return nil
}

// without returns the segments but one.
func without(segments []*segment, gone *segment) []*segment {
	return slices.DeleteFunc(slices.Clone(segments), func(s *segment) bool { return s == gone })
}

// endSegment closes the file. The next accept begins another one.
func (j *Journal) endSegment(err error) {
	if err = errors.Join(err, j.file.Close()); err != nil {
		j.opts.Log.Warn("a file of the accept journal was not closed in good order", "error", err)
	}
	j.current.ended = time.Now()
	j.file, j.current = nil, nil
}
