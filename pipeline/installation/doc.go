// Package installation keeps a process from a Redis that belongs to another database.
//
// Every database has an id, and the verifier of package recovery writes it into each partition of the Redis that it
// verifies. owner.go compares these owners with the process' own id, at start and before a worker touches a batch;
// guard.go does so on each new connection, and refuses commands on open ones once a verifier has found another owner.
//
// It only compares: taking a partition that belongs to nobody is for a verification, and no check reads or changes
// orders.
package installation
