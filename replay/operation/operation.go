package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/replay"
)

// Kind is what an operation does. Files contain its text, so the text of a kind must never change.
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

// State is the state of an operation. Files contain its text, so the text of a state must never
// change.
type State string

// The states of an operation. The last three are final: an operation in one of them has ended and
// does not change any more.
const (
	Pending   State = "pending"
	Running   State = "running"
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Ended reports whether the state is final.
func (s State) Ended() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Info describes an operation at one moment.
type Info struct {
	// ID identifies the operation forever. Ids sort in the order in which the operations were
	// accepted.
	ID   string
	Kind Kind
	// Projection is the name of the projection on which the operation works. It is empty if the
	// operation works on all projections, or on none.
	Projection string
	// Args are the arguments that were given to [Manager.Start], as JSON. [Resume] needs them. They
	// are dropped when the operation ends.
	Args json.RawMessage
	State
	// Created is when the operation was accepted, and Ended is when it ended; Ended is zero before
	// that.
	Created, Ended time.Time
	replay.PhaseProgress
	// Rate is how many units per second the operation has done recently; 0 means unknown.
	Rate float64
	// Remaining is the estimated time to the end of all phases; negative means unknown.
	Remaining time.Duration
	// Error says why the operation failed.
	Error string
	// Report tells people what the operation did and found, in at most 64 KiB.
	Report string
}

// name returns what people call the operation, such as "rebuild of graph".
func (i Info) name() string {
	if i.Projection == "" {
		return string(i.Kind)
	}
	return string(i.Kind) + " of " + i.Projection
}

// Func performs an operation. It must return soon after ctx ends, and must not leave half of its
// work behind: either all of it is done or nothing. report tells people what was done. It is kept
// even if err is not nil, because a comparison that found differences fails with a report.
type Func func(ctx context.Context, p *replay.Progress) (report string, err error)

// Resume returns a function that continues an operation which a restart has interrupted. An error
// marks the operation as failed.
type Resume func(Info) (Func, error)

// Errors of a [Manager].
var (
	// ErrNotFound means that there is no operation with this id, or that the manager has forgotten
	// it.
	ErrNotFound = errors.New("operation: there is no such operation")
	// ErrClosed means that the manager accepts no operations any more because the process is
	// stopping.
	ErrClosed = errors.New("operation: the process is stopping")
	// ErrCancelled is the cause with which the context of an operation ends when an operator
	// cancels the operation.
	ErrCancelled = errors.New("operation: cancelled")
)

// ConflictError means that an operation was rejected because another operation that has not ended
// conflicts with it.
type ConflictError struct {
	// With is the other operation.
	With Info
}

// Error names the other operation.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("the %s that began at %s is under way (operation %s): wait for it, or cancel it",
		e.With.name(), e.With.Created.Format(time.RFC3339), e.With.ID)
}

// usesGenerations holds the kinds that build, compare, change or swap the generations of a
// projection.
var usesGenerations = map[Kind]bool{Rebuild: true, Verify: true, Repair: true, Rollback: true}

// isConflict reports whether two operations must not run at the same time. An erasure conflicts
// with everything. Other operations conflict only if they work on the same projection, and either
// are of the same kind or both use its generations. Snapshots do not conflict with those, because a
// snapshot reads a state of the store that nothing changes.
func isConflict(a, b Info) bool {
	if a.Kind == Erase || b.Kind == Erase {
		return true
	}
	// An empty projection means all of them.
	if a.Projection != b.Projection && a.Projection != "" && b.Projection != "" {
		return false
	}
	return a.Kind == b.Kind || usesGenerations[a.Kind] && usesGenerations[b.Kind]
}
