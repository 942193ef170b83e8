package journal

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/pipeline"
)

// retryEvery is how often a disk that failed is tried again: a request must not wait for it each time.
const retryEvery = time.Second

// Options say where a journal is.
type Options struct {
	Dir          string // on a local disk; each installation and each process gets a directory of its own in it; "": none
	Installation string // id of the installation, so that no other one's accepts are ever taken for ours
	Fsync        bool   // flush each batch to the disk before it is answered, which also outlives a power cut
	Metrics      *Metrics
	Log          *slog.Logger

	AppendTimeout time.Duration // how long Append waits for the disk; default: 500 ms
	OverdueAfter  time.Duration // when an accept that Postgres does not have is reported to it; default: 30 s
}

// Journal keeps the accepts of this process, and those of processes before it that died. All methods may be called from
// many goroutines at once.
type Journal struct {
	opts Options

	mu      sync.Mutex // protects the rest, and the order of what is written
	homes   []*home    // own, then adopted
	own     *home      // nil while the disk fails
	id      string     // of the own journal, with or without a directory
	file    *os.File   // of the segment that is being written; nil while there is none
	current *segment   // that segment
	began   time.Time  // when that segment was made
	buffer  []byte
	retryAt time.Time // a failed disk is not tried before
	down    bool      // the disk has failed, and that is logged
	closed  bool

	memory memory

	presence sync.Mutex           // keeps a journal that is being forgotten from being announced again
	trimming sync.Mutex           // protects the next two, and lets one Trim run at a time
	progress map[string]*progress // segment → what is known of its orders
	reported map[string]bool      // journals of which this process has reported something

	tookOver atomic.Bool // see TookOver
	hangs    atomic.Bool // a write was given up; it is still waited for by nobody but itself
}

// Open takes over what dead processes left in the directory, and begins a journal of its own. A disk that fails is
// logged and tried again: the Journal then remembers the latest accepts in memory only, and says so in Append.
func Open(o Options) *Journal {
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.AppendTimeout <= 0 {
		o.AppendTimeout = appendTimeout
	}
	if o.OverdueAfter <= 0 {
		o.OverdueAfter = overdueAfter
	}
	j := &Journal{opts: o, id: newID(), progress: map[string]*progress{}, reported: map[string]bool{}}
	if o.Dir == "" {
		return j
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.adopt(); err != nil {
		j.failed(err)
	}
	if err := j.ready(); err != nil {
		j.failed(err)
		return j
	}
	j.works()
	return j
}

// Append keeps accepts of one sale on one partition, which must be done before their receipts are given. It reports
// whether they are on disk; otherwise the latest of them are remembered in memory, and the disk is tried again a second
// later. It costs one write for all of them. A disk that does not answer is waited for for AppendTimeout, once.
func (j *Journal) Append(at pipeline.SalePartition, accepts []pipeline.Accept) (onDisk bool) {
	if len(accepts) == 0 {
		return true
	}
	if !j.appendInTime(at, accepts) {
		j.opts.Metrics.memory.Add(float64(len(accepts)))
		j.memory.add(accepts)
		return false
	}
	j.opts.Metrics.disk.Add(float64(len(accepts)))
	return true
}

// write appends accepts and notes whether that works.
func (j *Journal) write(at pipeline.SalePartition, accepts []pipeline.Accept) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.appendTo(at, accepts) != nil {
		return false
	}
	j.works()
	return true
}

var (
	errOff     = errors.New("there is no directory for it")
	errWaiting = errors.New("it failed a moment ago")
)

// appendTo appends one record to the last segment. After an error the segment ends where it ended before.
func (j *Journal) appendTo(at pipeline.SalePartition, accepts []pipeline.Accept) error {
	if j.opts.Dir == "" || j.closed {
		return errOff
	}
	if time.Now().Before(j.retryAt) {
		return errWaiting
	}
	j.buffer = appendRecord(j.buffer[:0], at, accepts)
	if err := j.ready(); err != nil {
		j.failed(err)
		return err
	}
	s := j.current
	_, err := j.file.Write(j.buffer)
	if err == nil && j.opts.Fsync {
		err = j.file.Sync()
	}
	if err != nil {
		j.failed(err)
		j.endSegment(j.file.Truncate(s.size)) // what was written of the record is torn: it goes, or the file ends with it
		return err
	}
	s.size += int64(len(j.buffer))
	s.accepts += len(accepts)
	if s.size >= segmentBytes {
		j.endSegment(nil)
	}
	return nil
}

func (j *Journal) works() {
	j.down = false
	j.opts.Metrics.up.Set(1)
}

func (j *Journal) failed(err error) {
	if !j.down {
		j.opts.Log.Error("the accept journal can't be written; receipts say so, and the latest accepts are remembered "+
			"in memory only; look at the disk of ACCEPT_JOURNAL", "dir", j.opts.Dir, "error", err)
	}
	j.down = true
	j.opts.Metrics.up.Set(0)
	j.retryAt = time.Now().Add(retryEvery)
}

// Each calls do for the batches of accepts on some partitions, this process' and those of the processes before it. Each
// batch is of one sale on one partition. An accept may come twice, and may be stored in Postgres by now. It reads all
// files once. A file that can't be read is logged and counted, and the others are read. Errors: the first of do, which
// ends it, the end of the context, and KindUnavailable where the disk hangs.
func (j *Journal) Each(
	ctx context.Context, partitions []pipeline.Partition, do func(pipeline.SalePartition, []pipeline.Accept) error,
) error {
	wanted := func(p pipeline.Partition) bool { return slices.Contains(partitions, p) }
	segments, err := j.snapshot()
	if err != nil {
		return err
	}
	for _, s := range segments {
		var stopped error
		_, err := readSegment(&s, wanted, func(at pipeline.SalePartition, accepts []pipeline.Accept) error {
			stopped = errors.Join(ctx.Err(), do(at, accepts))
			return stopped
		})
		if stopped != nil {
			return stopped
		}
		if err != nil {
			j.opts.Metrics.corrupt.Add(float64(s.size))
			j.opts.Log.Error("a file of the accept journal can't be read", "file", s.path, "error", err)
		}
	}
	for at, accepts := range j.memory.of(wanted) {
		if err := do(at, accepts); err != nil {
			return err
		}
	}
	return nil
}

// TookOver reports whether the journal of a process that died was taken over since the last call: what it holds is to
// be submitted to Redis again.
func (j *Journal) TookOver() bool { return j.tookOver.Swap(false) }

// snapshot copies the segments as they are now: what is appended later is not seen.
func (j *Journal) snapshot() ([]segment, error) {
	if err := j.lock(); err != nil {
		return nil, err
	}
	defer j.mu.Unlock()
	var all []segment
	for _, h := range j.homes {
		for _, s := range h.segments {
			all = append(all, *s)
		}
	}
	return all, nil
}

// onDisk reports whether a file may hold anything.
func (j *Journal) onDisk() bool {
	segments, err := j.snapshot()
	return err != nil || slices.ContainsFunc(segments, func(s segment) bool { return s.size > int64(len(segmentHead)) })
}

// Close ends the journal: what it holds remains for the next process. Append then keeps nothing any more.
func (j *Journal) Close() error {
	if err := j.lock(); err != nil {
		return err
	}
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	if j.file != nil {
		j.endSegment(nil)
	}
	var errs []error
	for _, h := range j.homes {
		h.drop(func(s *segment) bool { return s.size <= int64(len(segmentHead)) })
		errs = append(errs, h.close())
	}
	return errors.Join(errs...)
}
