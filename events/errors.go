package events

import "errors"

// Errors of a log that is not in the expected state. The text of the returned error says what to
// do.
var (
	// ErrOtherLog means that the stream, cursor or position belongs to another log.
	ErrOtherLog = errors.New("events: another log")
	// ErrOtherEpoch means that the cursor or position belongs to another epoch of the log.
	ErrOtherEpoch = errors.New("events: another epoch of the log")
	// ErrLogShorter means that the log ends before the cursor.
	ErrLogShorter = errors.New("events: the log is shorter than it was")
	// ErrTrimmed means that the log no longer holds what the reader needs.
	ErrTrimmed = errors.New("events: the log is trimmed beyond the cursor")
	// ErrPositionAhead means that the position is beyond the end of the log.
	ErrPositionAhead = errors.New("events: the position is beyond the end of the log")
	// ErrNoLog means that the NATS server has no stream of the log.
	ErrNoLog = errors.New("events: there is no log")
	// ErrLogExists means that there already is a stream where a log was to be restored.
	ErrLogExists = errors.New("events: there is a log already")
	// ErrArchiveDamaged means that the archive does not hold what it should. Implementations of
	// [Archive] wrap it.
	ErrArchiveDamaged = errors.New("events: the archive of the log is damaged")
	// ErrTrimRefused means that the stream must not be trimmed so far.
	ErrTrimRefused = errors.New("events: trimming is refused")
	// ErrLeaseLost means that another process holds the lease, or may hold it.
	ErrLeaseLost = errors.New("events: the lease is lost")
	// ErrStreamMismatch means that the settings of the stream are not those that a log needs.
	ErrStreamMismatch = errors.New("events: the stream is not fit to be a log")
	// ErrForbidden means that the NATS user lacks a permission. The text names the subject.
	ErrForbidden = errors.New("events: the NATS user lacks a permission")
	// ErrLocked means that another process uses the data directory.
	ErrLocked = errors.New("events: the data directory is in use")
)

// Errors of publishing. After all of them but ErrOutcomeUnknown, no event of the call is in the
// log.
var (
	// ErrOutcomeUnknown means that the log did not say in time whether it took the events. Retry
	// with the same event ids.
	ErrOutcomeUnknown = errors.New("events: outcome unknown: retry with the same event ids")
	// ErrLogFull means that the log has reached its size limit.
	ErrLogFull = errors.New("events: the log is full")
	// ErrLogUnavailable means that the log cannot be reached or does not answer.
	ErrLogUnavailable = errors.New("events: the log is not available")
	// ErrOverloaded means that too many bytes are waiting to be published.
	ErrOverloaded = errors.New("events: overloaded")
	// ErrRefused means that the server refused the envelope for a reason that no retry will change.
	ErrRefused = errors.New("events: the server refused the envelope")
)

// Errors of reading and using a log.
var (
	// ErrHole means that the log has lost envelopes. The returned error is an eventlog.HoleError.
	// Reading continues when they come back or when the hole is accepted.
	ErrHole = errors.New("eventlog: the log has a hole")
	// ErrClosed is returned by methods of a log, publisher, hub or subscription after it was
	// closed.
	ErrClosed = errors.New("eventlog: closed")
)
