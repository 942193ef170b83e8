package lua

// MaxSettleBatch is for the tests of a full batch.
const MaxSettleBatch = maxSettleBatch
