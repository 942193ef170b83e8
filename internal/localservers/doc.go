// Package localservers runs private Redis and Postgres servers for `sluice dev`, `sluice demo` and the tests.
//
// A private server is the machine's own binary on a data directory of its own. It listens on a unix socket only, so any
// number run side by side and none can be mistaken for a system service; a Redis with a replica, or in a cluster, listens
// on a loopback port too, because both need one. It is as durable as we ask production to be
// (Redis fsyncs every write, Postgres fsyncs every commit), because what is shown on it shall hold there.
//
// Servers end with the process that started them, even when that process is killed with SIGKILL: see den.
//
// The package needs a Unix (fork, signals, sessions, /bin/sh). It prints nothing.
package localservers
