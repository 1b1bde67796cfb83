// Package statuscmd is the command status. It shows the state of a service by GetStatus, or periodically the change of its metrics between
// two readings.
package statuscmd
