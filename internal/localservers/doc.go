// Package localservers runs private Redis and Postgres servers for `sluice dev`, `sluice demo` and the tests.
//
// A private server is the machine's own binary on a data directory of its own. It listens on a unix socket only, so any
// number run side by side and none can be mistaken for a system service; a Redis with a replica, or in a cluster, also
// listens on a loopback port, because both need one. It is as durable as production must be (Redis fsyncs every write,
// Postgres every commit), so that what is shown on it is true there.
//
// Servers end with the process that started them, even when that process is killed with SIGKILL: see sandbox.
//
// The package needs a Unix (fork, signals, sessions, /bin/sh). It prints nothing.
package localservers
