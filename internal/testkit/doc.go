// Package testkit provides real servers for tests: one Redis and one Postgres per test process, started on first use
// and ended by Main, and private ones for tests that kill or pause them. A Redis Cluster is shared or private in the
// same way.
//
// Tests share the process' servers and run in parallel: each has a key prefix of its own (Prefix) and a database of its
// own (Database).
//
// Sources of the shared servers, first match wins: TEST_REDIS_URL and TEST_DATABASE_URL; the machine's binaries
// (package localservers); containers (testcontainers-go, images TEST_REDIS_IMAGE and TEST_POSTGRES_IMAGE).
// TEST_SERVERS=url|local|containers allows one source only. Without any server, a test is skipped, but fails when CI or
// SLUICE_REQUIRE_SERVERS is set.
//
// The package imports db, and through it pipeline, lua and lock: tests of those packages that use it are external
// (package db_test, lua_test, …).
package testkit
