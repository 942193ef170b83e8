package journal

// SegmentBytes and TrimAge are the limits that tests depend on.
const (
	SegmentBytes = segmentBytes
	RetryEvery   = retryEvery
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
	for _, s := range j.snapshot() {
		paths = append(paths, s.path)
	}
	return paths
}

// TakeOver is done every few seconds.
func (j *Journal) TakeOver() error { return j.takeOver() }

// Empty reports whether the journal holds nothing, neither of this process nor of those before it.
func (j *Journal) Empty() bool { return !j.onDisk() && len(j.memory.oldest(1)) == 0 }
