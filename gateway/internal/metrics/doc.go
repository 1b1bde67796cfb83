// Package metrics defines the metrics of the gateway: those that methods count ([Metrics]), and
// those that are read when /metrics is scraped, about the stores and their engines, the log,
// budgets and connections ([Observed]). docs/metrics.md lists all names.
package metrics
