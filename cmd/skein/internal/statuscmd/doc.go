// Package statuscmd is the command status: the state of a service by GetStatus, once or again and again, with what its metrics say
// happened between two readings.
package statuscmd
