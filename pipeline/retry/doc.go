// Package retry is how every stage of an order's way deals with a Redis that does not answer: which errors are worth
// another attempt, how long to wait before it, and when to give up.
//
// transient.go separates the errors that go away by themselves from those that do not, and turns the latter into the
// pipeline's own. backoff.go waits between attempts: up to 3 s in the loops that run as long as the process, up to 250
// ms while a buyer waits. call.go combines both for a script call of a request.
//
// It relies on the scripts: a call may be repeated only because the same call gets the same answer. It does not decide
// what is repeated in the loops; workers and jobs have their own rules.
package retry
