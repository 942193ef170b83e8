package pipeline

import "cmp"

// Release is stock and a slot to give back: one row of the outbox.
type Release struct {
	SaleID    string
	OrderID   string
	Sequence  int64
	UserID    string
	Partition Partition
	Withdrawn bool // only the slot goes back, the units do not go on sale again
	GivenBack bool // known once it is applied: true if Redis gave something back, false if the slot named another order
}

// SalePartition names the share of a sale that lies on one partition: what one script call can work on. The zero value
// comes before all others.
type SalePartition struct {
	SaleID    string
	Partition Partition
}

// Compare orders by sale, then by partition.
func (a SalePartition) Compare(b SalePartition) int {
	return cmp.Or(cmp.Compare(a.SaleID, b.SaleID), cmp.Compare(a.Partition, b.Partition))
}
