// Package db keeps sales and orders in Postgres.
//
// Store implements every small interface that package pipeline and its rooms declare for it. Each method is one
// statement or one short transaction, takes its deadline from the context (or a named default) and returns errors as
// *pipeline.Error: values that Postgres refuses are KindData, what is not there KindNotFound, and what may pass by
// itself KindUnavailable.
//
// # Locks
//
// Every transaction takes its locks in one order, and rows of one table in the order of their keys: orders, sales (by
// id), watermarks, releases, the rest. A new transaction must keep to it, or batches of two workers deadlock. Deadlocks
// that remain possible (two buyers' conflicts crossing) are retried.
package db
