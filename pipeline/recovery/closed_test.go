package recovery_test

import (
	"testing"

	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
)

// A sale that is over and gone is no loss: nothing brings it back by itself. When it is named, it is rebuilt as it was.
func TestASaleThatIsOverIsRebuiltWhenNamed(t *testing.T) {
	t.Parallel()
	c := pipelinetest.ClosedSale(pipelinetest.New(t, pipelinetest.Options{NoSale: true}))
	c.Over(c.Sale.ID)
	c.Vanish(c.Sale)
	v := recovery.NewVerifier(c.VerifierConfig())
	if err := v.Job().Run(c.Ctx()); err != nil {
		t.Fatal(err)
	}
	if reports, err := v.RebuildAll(c.Ctx(), "test", true); err != nil || len(reports) != 0 {
		t.Fatalf("rebuilt %+v, %v: want nothing, Redis need not have it", reports, err)
	}
	report, err := c.Auditor.Audit(c.Ctx(), c.Sale)
	if err != nil || !report.PostgresAlone || !report.Clean() {
		t.Fatalf("got %+v, %v, want it clean by Postgres alone", report, err)
	}
	repairer := recovery.NewRepairer(c.Store, c.Auditor, v, c.Burier(), c.Logger)
	repaired, err := repairer.Repair(c.Ctx(), c.Sale.ID, "test", true)
	if err != nil || repaired.Applied || len(repaired.Rebuilt) != 0 {
		t.Fatalf("repaired %+v, %v: want nothing done", repaired, err)
	}
	reports, err := v.Rebuild(c.Ctx(), c.Sale.ID, "test", true)
	if err != nil || len(reports) != 1 || reports[0].Live != 3 || reports[0].StockAfter != 96 {
		t.Fatalf("rebuilt %+v, %v", reports, err)
	}
	report, err = c.Auditor.Audit(c.Ctx(), c.Sale)
	if err != nil || report.PostgresAlone || !report.Clean() || !report.Exact || report.Buyers != 3 ||
		report.Rebuilds != 1 {
		t.Errorf("after the rebuild: got %+v, %v, want it clean by both stores", report, err)
	}
}
