package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"sluice/pipeline/admission"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/moves"
	"sluice/pipeline/notification"
	"sluice/pipeline/payments"
	"sluice/pipeline/recovery"
	"sluice/pipeline/resubmit"
	"sluice/pipeline/waitlist"
	"sluice/pipeline/worker"
)

// Metrics are those of every package of the pipeline. A process makes them once; a gauge that a process doesn't set is
// absent there.
type Metrics struct {
	Admission    *admission.Metrics
	Worker       *worker.Metrics
	DeadLetter   *deadletter.Metrics
	Lifecycle    *lifecycle.Metrics
	Payment      *payments.Metrics
	Notification *notification.Metrics
	Waitlist     *waitlist.Metrics
	Resubmit     *resubmit.Metrics
	Recovery     *recovery.Metrics
	Moves        *moves.Metrics
}

// New registers them all; a nil registerer leaves them unregistered.
func New(reg prometheus.Registerer) *Metrics {
	return &Metrics{
		Admission:    admission.NewMetrics(reg),
		Worker:       worker.NewMetrics(reg),
		DeadLetter:   deadletter.NewMetrics(reg),
		Lifecycle:    lifecycle.NewMetrics(reg),
		Payment:      payments.NewMetrics(reg),
		Notification: notification.NewMetrics(reg),
		Waitlist:     waitlist.NewMetrics(reg),
		Resubmit:     resubmit.NewMetrics(reg),
		Recovery:     recovery.NewMetrics(reg),
		Moves:        moves.NewMetrics(reg),
	}
}
