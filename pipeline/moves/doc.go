// Package moves moves units of a sale between its partitions, and finds out when none is left on any of them.
//
//   - move.go: what Postgres knows of a move, and what a partition has to know of all of them
//   - mover.go: the steps of a move, and finishing what another process has begun
//   - reading.go: two readings of all partitions that agree, which is what "sold out" takes
//   - seek.go: brings units to the partition of a buyer, or finds out that there are none
package moves
