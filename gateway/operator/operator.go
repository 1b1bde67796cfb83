package operator

import (
	"context"
	"errors"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Operator runs the operations that AdminService starts. Its methods may be called concurrently.
// They refuse requests with a [*Refusal], and return [ErrUnknownOperation] for an unknown id.
type Operator interface {
	// Start begins an operation, or refuses to. It does not wait until the operation has ended.
	Start(ctx context.Context, o OperationRequest) (*skeinv1.Operation, error)
	// Get returns the current state of an operation.
	Get(ctx context.Context, id string) (*skeinv1.Operation, error)
	// List returns at most n operations of a kind, the latest first. The unspecified kind means all
	// kinds. The list begins after the operation with the id before or, if before is empty, with
	// the latest operation. more reports whether the list continues.
	List(ctx context.Context, kind skeinv1.OperationKind, before string, n int) (ops []*skeinv1.Operation, more bool, err error)
	// Cancel asks an operation to end, and returns its state after that.
	Cancel(ctx context.Context, id string) (*skeinv1.Operation, error)
	// Watch calls f with the current state of an operation and then after each change, until the
	// operation has ended or f fails.
	Watch(ctx context.Context, id string, f func(*skeinv1.Operation) error) error
}

// OperationRequest says what an operation must do.
type OperationRequest struct {
	Kind skeinv1.OperationKind
	// Projection is the name of the projection that the operation is about. It is empty for an
	// operation about all projections, or about none.
	Projection string
	// Projections are the names of the projections of a snapshot. Empty means all.
	Projections []string
	// Partitions restrict the operation to some partitions. Empty means the default of the kind.
	Partitions []uint32
	// Share is the share of one CPU core that the operation may use. 0 and 1 do not limit the
	// operation.
	Share float64
	// Name is the name of a snapshot. If it is empty, the service chooses one.
	Name string
	// Users are the ids of the users to erase.
	Users []string
	// Generation is the number of the generation to which a rollback goes back. The Operator sets
	// it when it accepts the rollback.
	Generation uint32
	// Resumed is set if an earlier process accepted the operation, and this one continues it after
	// a restart.
	Resumed bool
}

// Errors of an [Operator].
var (
	// ErrUnknownOperation means that there is no operation with the id.
	ErrUnknownOperation = errors.New("gateway: there is no such operation")
	// ErrKindUnavailable means that this process cannot run operations of the kind.
	ErrKindUnavailable = errors.New("gateway: there is no such work")
	// ErrConflict means that another operation must end first.
	ErrConflict = errors.New("gateway: another operation is in the way")
	// ErrNotPossible means that the state of the service does not allow the operation.
	ErrNotPossible = errors.New("gateway: not possible as things are")
	// ErrUnknownNode means that the cluster has no node with the name.
	ErrUnknownNode = errors.New("gateway: there is no such node")
)

// Refusal is the error with which an [Operator] refuses a request.
type Refusal struct {
	// Cause is ErrKindUnavailable, ErrConflict, ErrNotPossible or ErrUnknownNode.
	Cause error
	// Text tells people why, and what they can do.
	Text string
	// Operation is the id of the operation that is in the way. It is empty for other reasons.
	Operation string
}

// Error returns the text.
func (r *Refusal) Error() string { return r.Text }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Cause }
