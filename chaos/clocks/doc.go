// Package clocks moves the clock of each process and of each store by an hour, forth and back, in the middle of a sale.
//
// Its test runs two apis and two workers as processes, built with a clock that a test can move, beside private servers
// with such clocks. While one of these clocks is wrong, and after it is right again, nothing may stand still: accepts,
// rows, expiry, units that are given back, payments, and the waitlist's hand-overs. No order expires before its buyer
// has had the time to pay, and at the end the books are exact. `make clocks` keeps each clock wrong for ten seconds and
// prints a table; go test is shorter.
package clocks
