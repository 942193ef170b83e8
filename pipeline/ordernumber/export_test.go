package ordernumber

import (
	"time"
)

// SetClock replaces the host's clock.
func (n *Generator) SetClock(now func() time.Time) { n.now = now }

// NumberBlock is how many numbers one lease holds.
const BlockSize = blockSize
