// Package metrics is what /metrics says of the gateway: what methods count ([Metrics]), and what is read when it is asked for: the
// stores and their engines, the log, budgets and connections ([Observed]). docs/metrics.md lists all names.
package metrics
