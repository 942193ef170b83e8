// Package pipeline is the domain of Sluice: a sale, the orders placed in it, and the stages that an order passes through.
//
// One file holds one stage, named after it: admit (Redis answers the buyer), consume (workers read what was accepted),
// persist (Postgres keeps it), settle (the stream forgets it), reclaim (what a dead worker left behind), release (stock
// given back) and audit (the proof that nothing was lost or sold twice). Postgres is reached only through the small
// interfaces declared beside the stage that uses them; package db implements them. Redis is reached through package lua.
package pipeline
