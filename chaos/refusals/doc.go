// Package refusals has Redis refuse the programs something, one thing at a time, while orders come in: each command
// that they use, each kind of key, each user. Rights and passwords are changed while a system runs, and changed back.
//
// Its test runs an api and a worker as processes, each with a user of its own. After each refusal both must heal by
// themselves, neither may die or panic, /readyz must have told while orders, or their rows, stood still, and at the end
// every accept is a row and the audit is exact. `make refusals` goes through all of them and prints a table; go test
// takes a few.
package refusals
