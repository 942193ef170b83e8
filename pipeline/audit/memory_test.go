package audit_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"testing"

	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/pipelinetest"
)

const (
	// bigSale is how many orders an audit's memory is measured with: enough that a few bytes for each would show.
	bigSale = 200_000
	// mostHeld is what an audit may hold for each order of that sale. A sale of ten million orders then fits into 256 MiB
	// with what a process needs anyway. The old way, a map of all slots, took 560.
	mostHeld = 20
	// weighEvery is after how many rows of Postgres the memory is weighed.
	weighEvery = 20_000
)

// weighed is a store that weighs what is held in memory while its rows are read: by then the slots were read.
type weighed struct {
	audit.LedgerSource
	base, most uint64 // bytes that live on the heap
	rows       int
}

// weigh returns what is in use on the heap. It collects garbage first, so that the result does not depend on when the
// collector ran.
func weigh() uint64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return now.HeapAlloc
}

func (w *weighed) Ledger(
	ctx context.Context, saleID string, inFlight iter.Seq[string],
	known, live, unapplied func(pipeline.LedgerOrder) error,
) (pipeline.Ledger, error) {
	return w.LedgerSource.Ledger(ctx, saleID, inFlight, known, func(o pipeline.LedgerOrder) error {
		if w.rows++; w.rows%weighEvery == 0 {
			w.most = max(w.most, weigh())
		}
		return live(o)
	}, unapplied)
}

func (w *weighed) perOrder() int64 { return (int64(w.most) - int64(w.base)) / bigSale }

// An audit's memory does not grow with the sale, and neither does it where some orders are wrong.
func TestAnAuditHoldsNoSale(t *testing.T) {
	r := pipelinetest.New(t, pipelinetest.Options{
		Sale: pipeline.Sale{Total: bigSale + 5, Partitions: []pipeline.Partition{1}},
	})
	r.FillSale(r.Sale, bigSale)
	w := &weighed{LedgerSource: r.Store, base: weigh()}
	auditor := audit.NewAuditor(r.Redis, r.Keys, w)
	report, err := auditor.Audit(r.Ctx(), r.Sale)
	if err != nil || !report.Clean() || !report.Exact || report.Buyers != bigSale || report.Live != bigSale {
		t.Fatalf("got %+v, %v, want a clean sale of %d orders", report, err, bigSale)
	}
	if w.rows != bigSale || w.perOrder() > mostHeld {
		t.Errorf("clean: %d bytes held for each of %d orders, want at most %d", w.perOrder(), w.rows, mostHeld)
	}
	t.Logf("clean: %d KiB held", (int64(w.most)-int64(w.base))>>10)

	taken := make([]string, 500)
	for i := range taken {
		taken[i] = fmt.Sprint("buyer-", 1+i*bigSale/len(taken))
	}
	if err := r.Redis.HDel(r.Ctx(), r.Keys.Buyers(1, r.Sale.ID), taken...).Err(); err != nil {
		t.Fatal(err)
	}
	w.rows, w.most, w.base = 0, 0, weigh()
	report, err = auditor.Look(r.Ctx(), r.Sale)
	if err != nil || !report.Exact || report.LostBuyers != int64(len(taken)) || report.StrayBuyers != 0 ||
		report.Buyers != bigSale-int64(len(taken)) {
		t.Fatalf("got %+v, %v, want %d orders without a slot", report, err, len(taken))
	}
	if w.rows != 2*bigSale || w.perOrder() > mostHeld {
		t.Errorf("wrong: %d bytes held for each order, want at most %d, after %d rows", w.perOrder(), mostHeld, w.rows)
	}
	t.Logf("wrong: %d KiB held", (int64(w.most)-int64(w.base))>>10)
}
