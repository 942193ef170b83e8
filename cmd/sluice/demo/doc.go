// Package demo runs a whole flash sale on private servers, with thousands of buyers who behave as buyers do, kills a worker
// in the middle of its work, and then proves that nothing was lost.
//
// The proof does not rest on what the pipeline says of itself. The buyers remember what each of them was told (history),
// Postgres is read with a query of the demo's own (rows), and the two are compared (check); the pipeline's audit comes on
// top of it.
package demo
