// Package operator is about who may operate an installation: the tokens of people and programs, their roles, and who a
// token is of. A token is made and revoked by the command line; the admin API checks it.
//
// Read role.go, token.go (what a token is), keyring.go (whose it is, by what Postgres says or said lately).
package operator
