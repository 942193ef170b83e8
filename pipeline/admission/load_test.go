package admission_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/pipelinetest"
)

// TestAQueueThatStandsIsKeptShort: more buyers ask, all the time, than Redis answers. The first rush waits; after that
// the queue gets shorter, the others are refused at once, and Redis is as busy as before.
func TestAQueueThatStandsIsKeptShort(t *testing.T) {
	t.Parallel()
	const crowd, batch = 100, 4
	opts := patient
	opts.BatchLimit = batch
	f := newFaultyRig(t, opts)
	f.proxy.Slow(20 * time.Millisecond)
	var shed, accepted atomic.Int64
	end := make(chan struct{})
	var buyers sync.WaitGroup
	for i := range crowd {
		buyers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				_, err := f.Try(pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%d-%d", i, n), Quantity: 1})
				if pipeline.KindOf(err) == pipeline.KindOverloaded {
					shed.Add(1)
					time.Sleep(5 * time.Millisecond)
					continue
				}
				accepted.Add(1)
			}
		})
	}
	testkit.Eventually(t, pipelinetest.CallLimit, "a whole crowd to wait", func() bool {
		return f.Admission.Waiting() >= crowd-2*batch
	})
	if n := shed.Load(); n > 0 {
		t.Errorf("%d were refused in the first rush", n)
	}
	testkit.Eventually(t, pipelinetest.CallLimit, "a short queue, and refusals", func() bool {
		return shed.Load() > crowd && f.Admission.Waiting() <= crowd/2
	})
	before, longest := accepted.Load(), 0
	testkit.Eventually(t, pipelinetest.CallLimit, "more orders", func() bool {
		longest = max(longest, f.Admission.Waiting())
		return accepted.Load() >= before+10*batch
	})
	if longest > crowd/2 {
		t.Errorf("%d of %d wait again", longest, crowd)
	}
	close(end)
	buyers.Wait()
	// Nobody is refused any more when the flood is over.
	if _, err := f.Try(pipeline.OrderRequest{UserID: "late", Quantity: 1}); err != nil {
		t.Error(err)
	}
}

// TestARushWaits: as many as the queue has room for come at the same moment, and all of them are answered.
func TestARushWaits(t *testing.T) {
	t.Parallel()
	opts := patient
	opts.BatchLimit = 4
	f := newFaultyRig(t, opts)
	q := newRequests(f.Rig)
	f.occupied(q, "second")
	const crowd = 300
	q.send(f.Ctx(), users("buyer", crowd)...)
	testkit.Eventually(t, pipelinetest.CallLimit, "all to wait", func() bool { return f.Admission.Waiting() == crowd })
	f.proxy.Slow(20 * time.Millisecond) // 75 batches take more than a second
	f.proxy.Thaw()
	q.wantAllAccepted()
}
