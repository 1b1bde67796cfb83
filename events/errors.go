package events

import "errors"

// Errors of a log that is not the one that was expected. The text of the error returned says what to do.
var (
	// ErrOtherLog: the stream, cursor or position belongs to another log.
	ErrOtherLog = errors.New("events: another log")
	// ErrOtherEpoch: the cursor or position belongs to another epoch of the log.
	ErrOtherEpoch = errors.New("events: another epoch of the log")
	// ErrLogShorter: the log ends before the cursor.
	ErrLogShorter = errors.New("events: the log is shorter than it was")
	// ErrTrimmed: the log no longer holds what the reader needs.
	ErrTrimmed = errors.New("events: the log is trimmed beyond the cursor")
	// ErrPositionAhead: the position is beyond the end of the log.
	ErrPositionAhead = errors.New("events: the position is beyond the end of the log")
	// ErrNoLog: the server has no stream of the log.
	ErrNoLog = errors.New("events: there is no log")
	// ErrLogExists: there is a stream where a log was to be restored.
	ErrLogExists = errors.New("events: there is a log already")
	// ErrArchiveDamaged: the archive does not hold what it should. Implementations of [Archive] wrap it.
	ErrArchiveDamaged = errors.New("events: the archive of the log is damaged")
	// ErrTrimRefused: the stream must not be trimmed so far.
	ErrTrimRefused = errors.New("events: trimming is refused")
	// ErrLeaseLost: the lease is, or may be, another's.
	ErrLeaseLost = errors.New("events: the lease is lost")
	// ErrStreamMismatch: the stream is not fit to be a log.
	ErrStreamMismatch = errors.New("events: the stream is not fit to be a log")
	// ErrForbidden: the user of the NATS servers lacks a permission. The text names the subject.
	ErrForbidden = errors.New("events: the NATS user lacks a permission")
	// ErrLocked: the data directory is in use.
	ErrLocked = errors.New("events: the data directory is in use")
)

// Errors of publishing. All but ErrOutcomeUnknown mean that nothing of the call was taken.
var (
	// ErrOutcomeUnknown: the log did not say in time whether it took the events. Retry with the same event ids.
	ErrOutcomeUnknown = errors.New("events: outcome unknown: retry with the same event ids")
	// ErrLogFull: the log has reached its bound.
	ErrLogFull = errors.New("events: the log is full")
	// ErrLogUnavailable: the log cannot be reached, or does not answer.
	ErrLogUnavailable = errors.New("events: the log is not available")
	// ErrOverloaded: too much is waiting to be published.
	ErrOverloaded = errors.New("events: overloaded")
	// ErrRefused: the server refused the envelope for a reason that no retry will change.
	ErrRefused = errors.New("events: the server refused the envelope")
)

// Errors of reading and using a log.
var (
	// ErrHole means that the log has lost envelopes. The returned error is an eventlog.HoleError. Reading continues when they come back
	// or when the hole is accepted.
	ErrHole = errors.New("eventlog: the log has a hole")
	// ErrClosed is returned by methods of a log, publisher, hub or subscription after it was closed.
	ErrClosed = errors.New("eventlog: closed")
)
