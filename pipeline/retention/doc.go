// Package retention drops what was kept for long enough: first the orders of sales that have left Redis, with all that
// belongs to them.
//
// Read in this order: batch.go (what one transaction drops), holds.go (what keeps a sale from being dropped),
// dropper.go (the job), report.go (what operators see of it).
package retention
