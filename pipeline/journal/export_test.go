package journal

// SegmentBytes and TrimAge are the limits that tests depend on.
const (
	SegmentBytes = segmentBytes
	RetryEvery   = retryEvery
	OverdueLimit = overdueLimit
)

// EndSegment makes the last segment old enough to be trimmed.
func (j *Journal) EndSegment() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		j.endSegment(nil)
	}
}

// Files returns the paths of all segments.
func (j *Journal) Files() []string {
	var paths []string
	segments, _ := j.snapshot()
	for _, s := range segments {
		paths = append(paths, s.path)
	}
	return paths
}

// TakeOver is done every few seconds.
func (j *Journal) TakeOver() error { return j.takeOver() }

// Empty reports whether the journal holds nothing, neither of this process nor of those before it.
func (j *Journal) Empty() bool { return !j.onDisk() && len(j.memory.oldest(1)) == 0 }

// Hang does what a write does to a disk that hangs, until it is called off.
func (j *Journal) Hang() (off func()) {
	j.mu.Lock()
	return j.mu.Unlock
}
