package db

// The statements whose plans a test looks at.
const (
	InsertQuery      = insertQuery
	ExplainQuery     = explainQuery
	OrderQuery       = orderQuery
	LatestOrderQuery = latestOrderQuery
	KnownQuery       = knownQuery
	UnappliedQuery   = unappliedQuery
	WaitingQuery     = waitingQuery
	OrdersByIDQuery  = ordersByIDQuery

	KnownPaymentQuery    = knownPaymentQuery
	WaitingPaymentsQuery = waitingPaymentsQuery
	PaymentsQuery        = paymentsQuery
	OrderPaymentsQuery   = orderPaymentsQuery
)
