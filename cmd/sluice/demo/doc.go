// Package demo runs a whole flash sale on private servers, with thousands of buyers who behave as buyers do, kills a
// worker in the middle of its work, lets units that nobody pays for go to buyers who wait, and then proves that
// nothing was lost.
//
// Its phases, in their order: the sale is announced and the rush begins (phases), a worker dies (worker_kill), some
// join the waitlist (waitlist), others pay or cancel (pay, fates), the dead worker's orders are taken over
// (worker_kill), the time to pay ends and units go on (expiry), the last ones come too late (phases).
//
// The proof does not rest on what the pipeline says of itself: see package buyers. The pipeline's audit comes on top
// of it.
package demo
