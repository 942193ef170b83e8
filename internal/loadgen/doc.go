// Package loadgen places orders over HTTP, and measures how long each buyer waits for the answer. The benchmark and the
// command `sluice bench` share it.
//
// In the open model (Config.Rate above 0) buyers arrive by a schedule that knows nothing of the answers: at random
// moments (a Poisson process, made from a seed), so many per second on average. That is how a crowd behaves, and it is
// what makes waiting times honest: each counts from the moment at which the schedule meant the request to be sent. A
// generator that sends the next request only after an answer would itself wait while the server stalls, and would count
// one slow request where a crowd would have seen thousands (coordinated omission).
//
// Connections are kept, and their number is bounded. A buyer who finds all of them busy waits, and the wait counts.
// When Config.Waiting buyers wait already, the next ones are not sent; they are counted apart, because no waiting time
// can be stated for them.
//
// In the closed model (Config.Rate 0) each connection sends the next request when the last one is answered. It finds
// out how much a server can take, and says little about waiting times.
//
// Reading order: config, request, answer, connection, generator, pacer, recorder, result.
package loadgen
