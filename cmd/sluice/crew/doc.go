// Package crew runs a whole private installation for `sluice dev` and `sluice demo`: a Redis, a Postgres, one API and
// some workers, each a process of its own.
//
// The API and the workers are this very binary, started again (see Serve), so that one file is enough. They say what they
// do in their logs, and those are also how the crew learns their addresses and names: a port that is chosen by whoever
// listens on it can't be taken by somebody else in between.
//
// Nothing of it outlives the process that started it, however that ends: see package localservers.
package crew
