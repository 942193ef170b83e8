package pipeline

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// PlaceSale chooses the partition of a new sale by its id, so that sales spread evenly and the place of each follows
// from its id alone. Sales with a limit together are placed by the id of their group.
func PlaceSale(saleID string, partitions int) []Partition {
	return []Partition{Partition(xxhash.Sum64String(saleID) % uint64(partitions))}
}

// PartitionOf returns the partition of a sale that serves a buyer. It is always the same one, which makes "one live
// order per buyer" a check inside one script.
func (s *Sale) PartitionOf(userID string) Partition {
	if len(s.Partitions) == 1 {
		return s.Partitions[0]
	}
	return s.Partitions[xxhash.Sum64String(userID)%uint64(len(s.Partitions))]
}

// ShareOf returns the units of a total that belong to a partition of the sale. The shares add up to the total; the
// first partitions get the remainder, one unit each.
func (s *Sale) ShareOf(p Partition, total int64) int64 {
	i, n := int64(slices.Index(s.Partitions, p)), int64(len(s.Partitions))
	if i < 0 {
		return 0
	}
	share := total / n
	if i < total%n {
		share++
	}
	return share
}
