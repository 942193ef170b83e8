// Package metrics registers the metrics of all packages of the pipeline at once, for a program that runs several of
// them.
//
// Each package defines and counts its own, in its metrics.go, and works without any. This package only brings them
// together: it is imported by programs and test rigs, and by no other package of the pipeline. The names are documented
// in docs, and the metrics of the stores' clients and of the API are registered elsewhere.
package metrics
