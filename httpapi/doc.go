// Package httpapi is the public HTTP side of Sluice: it turns requests into calls of the pipeline, and what the pipeline
// decides into answers that are the same everywhere (JSON, problem+json, the headers that go with them).
//
// It is the only package that knows echo, so that another router is one package's change. openapi.yaml is the contract:
// the contract tests hold every handler to it, and /docs is drawn from it.
//
// The order path is written by hand, because it is the one that a flash sale floods: a body is read into a pooled buffer,
// decoded without reflection and answered by appending. Everything else is plain encoding/json.
package httpapi
