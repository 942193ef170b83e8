package pipeline

// Watermark is the state that Redis must have reached at least for a sale on a partition, by what Postgres has
// recorded.
type Watermark struct {
	SaleID    string
	Partition Partition
	Version   int64 // of the sale's definition
	Accepted  int64 // the highest accept that is persisted
	Released  int64 // releases by which Redis gave something back
	Lost      int64 // accepts that earlier rebuilds found lost
	Tickets   int64 // the highest ticket of the waitlist that is recorded
	// Units that came from, and went to, other partitions, and how often a rebuild decided what becomes of moves.
	MovedIn, MovedOut, MovesSettled int64

	Moved  bool // units of the sale were moved between partitions, or were to be
	Loaded bool // Redis was given the sale; otherwise it was only about to be, and may have it or not
}
