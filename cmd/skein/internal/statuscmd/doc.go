// Package statuscmd is the command `skein status`. It prints the state of a service once, from
// GetStatus, or repeatedly what the service is doing (--watch), from the change of its metrics
// between two readings.
package statuscmd
