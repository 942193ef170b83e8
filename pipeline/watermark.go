package pipeline

// Mark is what Redis must at least hold of a sale on a partition.
type Watermark struct {
	SaleID    string
	Partition Partition
	Version   int64 // of the sale's definition
	Accepted  int64 // the highest accept that is persisted
	Released  int64 // releases by which Redis gave something back
	Lost      int64 // accepts that earlier rebuilds found lost
	Tickets   int64 // the highest ticket of the waitlist that is noted
}
