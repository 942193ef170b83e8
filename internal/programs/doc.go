// Package programs runs Sluice's server programs as processes of their own: a whole private stack (Redis, Postgres,
// one API and some workers) for `sluice dev` and `sluice demo`, and single processes for the chaos runs.
//
// The API and the workers are this very binary, started again (see Serve), so that one file is enough. They say what
// they do in their logs, and those are also how their addresses and names become known: a port that is chosen by the
// process that listens on it can't be taken by another one in between.
//
// Nothing of it outlives the process that started it, however that ends: see package localservers.
package programs
