package journal_test

import (
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/journal"
)

// A disk that hangs keeps no buyer from an answer, and no verification from going on; what is accepted meanwhile is
// remembered. Once the disk answers, everything is written to it again.
func TestADiskThatHangs(t *testing.T) {
	j := journal.Open(journal.Options{
		Dir: t.TempDir(), Installation: installation, AppendTimeout: 100 * time.Millisecond,
	})
	t.Cleanup(func() { _ = j.Close() })
	callOff := j.Hang()
	done := make(chan bool)
	go func() {
		for range 100 { // only the first waits
			done <- j.Append(at, accepts(1))
		}
	}()
	for range 100 {
		select {
		case onDisk := <-done:
			if onDisk {
				t.Error("an accept is on a disk that hangs")
			}
		case <-time.After(time.Minute):
			t.Fatal("an answer waits for the disk")
		}
	}
	none := func(pipeline.SalePartition, []pipeline.Accept) error { return nil }
	if err := j.Each(t.Context(), []pipeline.Partition{at.Partition}, none); pipeline.KindOf(err) !=
		pipeline.KindUnavailable {
		t.Errorf("read: got %v, want %s", err, pipeline.KindUnavailable)
	}
	if err := j.Works(); pipeline.KindOf(err) != pipeline.KindUnavailable {
		t.Errorf("works: got %v, want %s", err, pipeline.KindUnavailable)
	}
	callOff()
	testkit.Eventually(t, time.Minute, "the disk is used again", func() bool { return j.Append(at, accepts(1)) })
	if got := len(read(t, j, at.Partition)); got < 101 {
		t.Errorf("%d accepts are kept, want 101 or more", got)
	}
}
