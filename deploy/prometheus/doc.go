// Package prometheus has the alerts of Sluice (sluice.rules.yml), their tests by promtool (sluice.rules.test.yml) and an
// example of a configuration (prometheus.yml).
//
// Its own tests start a real Prometheus beside real servers and programs, cause each fault, and see its alert fire and
// resolve; they compare the rules and the dashboard with what the programs really export, and with the runbook. Where
// Prometheus is not installed, what needs it is skipped.
package prometheus
