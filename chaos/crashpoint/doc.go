// Package crashpoint kills real processes between every two steps of their loops, and audits what is left: every
// point, not a sample.
//
// All that the world can see of a process are its requests. So each run of a scenario has one point: the moment
// before some request reaches its server, or the moment after the server has done it and before the process gets the
// answer. A proxy stops the request there, the process gets SIGKILL, others take over, and the stores must agree:
// each accept is one row, each poison one letter, each release given back once. A first run without a crash lists the
// points; each scenario names the steps that must be among them, so that a step which is not met any more is noticed.
//
// There is nothing here but tests.
package crashpoint
