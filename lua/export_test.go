package lua

// MaxSettleBatch is for the tests of a full batch.
const MaxSettleBatch = maxSettleBatch

// Moves have no caller yet, and are exported when a rebuild knows them (docs/decisions/0044-units-on-the-move.md).
type Move = move

// The halves of a move, and the refusal of one that was forgotten.
var (
	Take, Give      = take, give
	ErrMoveFinished = errMoveFinished
)
