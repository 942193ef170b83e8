package admission_test

import (
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
)

// A sale that is long over and that Redis no longer has is closed, and not about to be loaded; one that closed an hour
// ago may be coming back.
func TestASaleThatIsOverIsClosedWithoutRedis(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for closed, want := range map[time.Duration]admission.Result{time.Hour: "", 25 * time.Hour: admission.Closed} {
		r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{
			Total: 1, OpensAt: now.Add(-48 * time.Hour), ClosesAt: now.Add(-closed),
		}})
		r.Lose(r.Sale)
		got, err := r.Try(pipeline.OrderRequest{UserID: "ann", Quantity: 1})
		if want == "" {
			pipelinetest.WantKind(t, err, pipeline.KindNotLoaded)
			continue
		}
		if err != nil || got.Result != want || !got.ClosesAt.Equal(r.Sale.ClosesAt) {
			t.Errorf("%s after its end: got %+v, %v, want %s", closed, got, err, want)
		}
	}
}
