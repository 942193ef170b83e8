// Package httpapi is the HTTP side of Sluice, for buyers (New) and for operators (NewAdmin): it turns requests into
// calls of the pipeline, and what the pipeline decides into answers that are the same everywhere (JSON, problem+json,
// the headers that go with them).
//
// It is the only package that knows echo, so that another router is one package's change. openapi.yaml and admin.yaml
// are the contract: the contract tests check every answer against them, and /docs is generated from openapi.yaml.
//
// A request passes the middleware (request id, deadline, log, metrics) to its handler, which returns a result or an
// error; problemOf turns any error into a problem document by the table in problem_table.go.
package httpapi
