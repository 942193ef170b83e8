package pipeline

import "github.com/prometheus/client_golang/prometheus"

// Metrics are those of every room. A process makes them once; in processes that don't set a gauge it stays absent.
type Metrics struct {
	Admission    *AdmissionMetrics
	Worker       *WorkerMetrics
	DeadLetter   *DeadLetterMetrics
	Lifecycle    *LifecycleMetrics
	Payment      *PaymentMetrics
	Notification *NotificationMetrics
	Waitlist     *WaitlistMetrics
	Resubmit     *ResubmitMetrics
	Recovery     *RecoveryMetrics
}

// NewMetrics registers them all; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{
		Admission:    NewAdmissionMetrics(reg),
		Worker:       NewWorkerMetrics(reg),
		DeadLetter:   NewDeadLetterMetrics(reg),
		Lifecycle:    NewLifecycleMetrics(reg),
		Payment:      NewPaymentMetrics(reg),
		Notification: NewNotificationMetrics(reg),
		Waitlist:     NewWaitlistMetrics(reg),
		Resubmit:     NewResubmitMetrics(reg),
		Recovery:     NewRecoveryMetrics(reg),
	}
}
