package lua

import (
	_ "embed" // it is part of the scripts that move units
	"errors"
	"fmt"
)

// movesSource stands at the head of the scripts that move units between partitions: take, give.
//
//go:embed moves.lua
var movesSource string

// ErrMoveFinished is returned for a move that ended before, of which Redis keeps no record: Postgres has its outcome.
var ErrMoveFinished = errors.New("the move has ended before")

// Move is one move of units of a sale between two of its partitions, as Take or Give has it.
type Move struct {
	Number int64 // among the moves of the sale, from 1, in the order in which Postgres commits them
	Units  int64 // for Take, the most that it may take; for Give, what it has taken
	// Done is a number up to which every move of the sale has ended; less than Number. Redis forgets those. It is read
	// from Postgres, where a number is given out while the sale is locked, so that none below it can appear later.
	Done int64
}

func (m Move) check(least int64) error {
	switch {
	case m.Number < 1 || m.Number > maxExact:
		return fmt.Errorf("move %d: use 1 to %d", m.Number, int64(maxExact))
	case m.Units < least || m.Units > maxExact:
		return fmt.Errorf("move of %d units: use %d to %d", m.Units, least, int64(maxExact))
	case m.Done < 0 || m.Done >= m.Number:
		return fmt.Errorf("moves up to %d have ended: use 0 to %d", m.Done, m.Number-1)
	}
	return nil
}
