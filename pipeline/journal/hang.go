package journal

import (
	"time"

	"sluice/pipeline"
)

const (
	// appendTimeout is how long an answer waits for a disk: a disk that hangs must not end the sale. A write into the page
	// cache takes microseconds, one that is flushed milliseconds. An attempt, a confirmation and this fit into the time
	// limit of a request.
	appendTimeout = 500 * time.Millisecond
	// lockLimit is how long everything else waits for it: a verification, too, must go on without this journal.
	lockLimit = time.Second
	// lockPoll is the time between two tries.
	lockPoll = time.Millisecond
)

var errHangs = pipeline.Errorf(pipeline.KindUnavailable, "the disk of the accept journal does not answer")

// appendInTime appends accepts, and gives up where the disk hangs; the write may then still be done. While one write
// is given up and not over, no other is tried, so that they don't pile up.
func (j *Journal) appendInTime(at pipeline.SalePartition, accepts []pipeline.Accept) (onDisk bool) {
	if j.opts.Dir == "" || j.hangs.Load() {
		return false
	}
	written := make(chan bool, 1)
	go func() {
		written <- j.write(at, accepts)
		j.hangs.Store(false)
	}()
	limit := time.NewTimer(j.opts.AppendTimeout)
	defer limit.Stop()
	select {
	case onDisk = <-written:
		return onDisk
	case <-limit.C:
	}
	j.hangs.Store(true)
	select {
	case onDisk = <-written: // in the last moment
		j.hangs.Store(false)
	default:
		j.opts.Metrics.up.Set(0)
		j.opts.Log.Error("the disk of the accept journal does not answer; receipts say so, and the latest accepts are "+
			"remembered in memory only", "dir", j.opts.Dir, "waited", j.opts.AppendTimeout)
	}
	return onDisk
}

// lock takes the mutex, which a write to a disk that hangs holds for as long as it hangs.
func (j *Journal) lock() error {
	for began := time.Now(); !j.mu.TryLock(); {
		if time.Since(began) > lockLimit {
			return errHangs
		}
		time.Sleep(lockPoll)
	}
	return nil
}
