package db

// The statements whose plans a test looks at.
const (
	InsertQuery            = insertQuery
	ConflictsQuery         = conflictsQuery
	OrderQuery             = orderQuery
	LatestOrderQuery       = latestOrderQuery
	KnownQuery             = knownQuery
	UnappliedQuery         = unappliedQuery
	UnresolvedLettersQuery = unresolvedLettersQuery
	OrdersByIDQuery        = ordersByIDQuery
	UnsettledQuery         = unsettledQuery

	KnownPaymentQuery    = knownPaymentQuery
	WaitingPaymentsQuery = waitingPaymentsQuery
	PaymentsQuery        = paymentsQuery
	OrderPaymentsQuery   = orderPaymentsQuery
)

// LeaseTTL is how long an election outlives its holder.
const LeaseTTL = leaseTTL
