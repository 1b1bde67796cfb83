// Package statuscmd is the command `skein status`. It prints the state of a service once, as
// GetStatus answers it. With --watch, it shows again and again what the service is doing, which it
// computes from the change of the service's metrics between two readings.
package statuscmd
