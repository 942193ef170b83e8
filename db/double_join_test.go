package db_test

import (
	"fmt"
	"sync"
	"testing"
)

// Two calls with one and the same entry at the same moment, a thousand times: of an entry that two unique indexes know,
// either may be the first to be met.
func TestOneEntryRecordedTwiceAtOnce(t *testing.T) {
	f := setup(t)
	f.waitlistSale()
	for i := range 1000 {
		entry := waitlistEntry(fmt.Sprint("buyer-", i), int64(2*i+1))
		var calls sync.WaitGroup
		for n := range 4 {
			calls.Go(func() {
				err := f.store.RecordJoin(f.ctx(), 1, entry)
				if n == 3 && err == nil { // a leave beside its own join
					_, err = f.store.RecordLeave(f.ctx(), 1, entry, int64(2*i+2))
				}
				if err != nil {
					t.Errorf("entry %d: %v", i, err)
				}
			})
		}
		calls.Wait()
		if t.Failed() {
			return
		}
	}
	if left := f.waitlist(); len(left) != 0 {
		t.Errorf("%d still wait, though all have left", len(left))
	}
}
