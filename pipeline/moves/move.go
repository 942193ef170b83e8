package moves

import (
	"context"
	"time"

	"sluice/pipeline"
)

// State is how far a move is, as Postgres has it.
type State string

// The states, in the order in which a move passes them. The last two are final.
const (
	Intended State = "intended" // nothing is known to be taken
	Taken    State = "taken"    // the units are out of one partition, and not known to be in the other one
	Given    State = "given"    // they are
	Void     State = "void"     // nothing was taken, and never will be
)

// Ended reports whether nothing more becomes of a move.
func (s State) Ended() bool { return s == Given || s == Void }

// Move is one row: units of a sale on their way from one of its partitions to another.
type Move struct {
	SaleID   string
	Number   int64 // among the moves of the sale, from 1
	From, To pipeline.Partition
	Wanted   int64 // units, at most
	Units    int64 // that were taken; 0 before that is known
	State    State
	// Done is a number up to which every move of the sale has ended; less than Number.
	Done int64
}

// Standing is what a partition of a sale has to know of moves.
type Standing struct {
	MovedIn, MovedOut int64 // units that came from, and went to, other partitions
	Done              int64 // every move of the sale up to this number has ended
	Settled           int64 // how often a rebuild of the partition has decided what becomes of moves
	// In and Out are the moves above Done of which the units are in this partition, or left it.
	In, Out []Move
}

// Store keeps the moves in Postgres. Each method may be repeated.
type Store interface {
	Generation(ctx context.Context) (pipeline.Generation, error)
	// BeginMove gives a move a number. Errors: KindOverloaded, where too many moves of the sale are under way;
	// KindConflict, where the sale is not on these partitions, or over.
	BeginMove(ctx context.Context, m Move) (Move, error)
	// MoveTaken notes what Redis said that a move has taken, 0 units: it is void. Asked is the present generation when
	// Redis was asked, and served the one of the server that answered: if Redis may have forgotten it since, nothing is
	// noted. It returns the move as it is then; one that is not known any more has ended.
	MoveTaken(ctx context.Context, m Move, units int64, asked, served pipeline.Generation) (Move, error)
	// MoveGiven notes that the units of a move have arrived, under the same conditions.
	MoveGiven(ctx context.Context, m Move, asked, served pipeline.Generation) (Move, error)
	// MovesUnderWay are moves that did not change for so long and have not ended, the oldest first.
	MovesUnderWay(ctx context.Context, idle time.Duration, limit int) ([]Move, error)
	// ForgetMoves deletes moves that ended so long ago, as all below them did.
	ForgetMoves(ctx context.Context, after time.Duration) error
}
