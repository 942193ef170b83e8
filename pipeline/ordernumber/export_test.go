package ordernumber

import "time"

// SetClock replaces the host's clock.
func (g *Generator) SetClock(now func() time.Time) { g.now = now }

// BlockSize is how many numbers one lease reserves.
const BlockSize = blockSize

// Veil is what makes one block of another.
var Veil = veil
