package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/replay"
)

// Kind is what an operation does. Its text stands in files and never changes.
type Kind string

// The kinds of operations.
const (
	Rebuild  Kind = "rebuild"
	Verify   Kind = "verify"
	Repair   Kind = "repair"
	Rollback Kind = "rollback"
	Snapshot Kind = "snapshot"
	Erase    Kind = "erase"
)

// State is how far an operation is. Its text stands in files and never changes.
type State string

// The states of an operation. An operation in one of the last three has ended and does not change any more.
const (
	Pending   State = "pending"
	Running   State = "running"
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Ended reports whether the state is a last one.
func (s State) Ended() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Info is an operation at one moment.
type Info struct {
	// ID names the operation for ever. Ids sort by the order in which operations were accepted.
	ID   string
	Kind Kind
	// Projection is what the operation is about; empty means all, or none.
	Projection string
	// Args are what the operation was asked for, for [Resume]. They are forgotten when the operation ends.
	Args json.RawMessage
	State
	// Created is when the operation was accepted, Ended when it ended; zero before.
	Created, Ended time.Time
	replay.PhaseProgress
	// Rate is how many units were done a second, lately.
	Rate float64
	// Remaining is the estimated time to the end of all phases; negative: unknown.
	Remaining time.Duration
	// Error is why the operation failed.
	Error string
	// Report is what was done and found, for people, at most 64 KiB.
	Report string
}

// name is the operation for people.
func (i Info) name() string {
	if i.Projection == "" {
		return string(i.Kind)
	}
	return string(i.Kind) + " of " + i.Projection
}

// Func does an operation. It ends soon after the context does, and leaves a state that is whole: that before, or
// that after. The report is kept also when there is an error, as of a comparison that found differences.
type Func func(ctx context.Context, p *replay.Progress) (report string, err error)

// Resume returns a function that continues an operation which a restart interrupted.
type Resume func(Info) (Func, error)

// Errors of a [Manager].
var (
	// ErrNotFound: there is no such operation, or it was forgotten.
	ErrNotFound = errors.New("operation: there is no such operation")
	// ErrClosed: the process is stopping.
	ErrClosed = errors.New("operation: the process is stopping")
	// ErrCancelled is the cause of the end of the context of an operation that was cancelled.
	ErrCancelled = errors.New("operation: cancelled")
)

// ConflictError refuses an operation because of another that is under way.
type ConflictError struct {
	// With is what is in the way.
	With Info
}

// Error names the operation in the way.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("the %s that began at %s is under way (operation %s): wait for it, or cancel it",
		e.With.name(), e.With.Created.Format(time.RFC3339), e.With.ID)
}

// builds are the kinds that fold, compare or swap what one projection consists of.
var builds = map[Kind]bool{Rebuild: true, Verify: true, Repair: true, Rollback: true}

// conflict reports whether two operations cannot continue beside each other: erasing with anything, the same twice, and two
// that work on the generations of one projection. A snapshot reads a state that nothing else changes.
func conflict(a, b Info) bool {
	if a.Kind == Erase || b.Kind == Erase {
		return true
	}
	if a.Projection != b.Projection && a.Projection != "" && b.Projection != "" {
		return false
	}
	return a.Kind == b.Kind || builds[a.Kind] && builds[b.Kind]
}
