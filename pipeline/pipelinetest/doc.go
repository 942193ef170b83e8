// Package pipelinetest is the rig on which the pipeline's packages are tested, over real stores and without any mock.
//
// Read rig.go first: a rig is one installation with a sale, and the calls that place, persist and count its orders. The
// other files add what one subject needs: sales.go, lifecycle.go, deadletter.go, recovery.go, hub.go, worker.go and
// running_worker.go; busy_sale.go, tamperings.go and market.go are for audits; faults.go has what breaks connections,
// metrics.go reads counters, and concurrency.go runs things at once. main.go is the TestMain of a package that uses a
// rig.
//
// It relies on package testkit for its servers, and cleans up when the test ends. It is imported by tests only. Its
// calls fail the test when a store does not answer; what a test is about is asserted in the test itself, except where a
// name says otherwise (Balanced, AwaitVersion).
package pipelinetest
