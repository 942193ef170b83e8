package moves

// Advance is for processes that go on after others have finished their move.
var Advance = (*Mover).advance
