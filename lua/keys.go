package lua

// SaleKeys are the keys of one sale on one partition; they share a hash slot.
type SaleKeys struct {
	Sale     string // hash of the sale
	Buyers   string // hash from user id to slot
	Trusted  string // names the server process whose state was verified
	Orders   string // the partition's stream of order events
	Waitlist string // sorted set of the users who wait, by ticket
	Waiting  string // hash from user id to waitlist entry
	Ended    string // hash from user id to the slots of ended orders that had an idempotency key

	Generation string // that of the last verification of this server

	// Fence is the generation in which the partition was verified last, as far as the caller knows: Admit and Resubmit
	// accept nothing on a server that was verified in an earlier one, since another has taken its place. Zero: not known.
	Fence int64
}

// withOrders are all keys, in the order of the scripts that can hand units over.
func (k SaleKeys) withOrders() []string {
	return []string{k.Sale, k.Buyers, k.Trusted, k.Orders, k.Waitlist, k.Waiting}
}
