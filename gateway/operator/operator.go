package operator

import (
	"context"
	"errors"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Operator does the operations, the long-running tasks, that AdminService is asked for. It knows operations by id; its methods are safe for
// concurrent use. It refuses requests with a [*Refusal], and answers [ErrUnknownOperation] for an id that it does not know.
type Operator interface {
	// Start begins an operation, or refuses to. It does not wait for its end.
	Start(ctx context.Context, o OperationRequest) (*skeinv1.Operation, error)
	// Get returns an operation as it is.
	Get(ctx context.Context, id string) (*skeinv1.Operation, error)
	// List returns at most n operations of a kind (unspecified: any), the latest first, from the one before an id on;
	// empty: from the latest. More reports whether there are others.
	List(ctx context.Context, kind skeinv1.OperationKind, before string, n int) (ops []*skeinv1.Operation, more bool, err error)
	// Cancel asks an operation to end, and returns it as it is then.
	Cancel(ctx context.Context, id string) (*skeinv1.Operation, error)
	// Watch calls f with an operation as it is and after each change, until it has ended or f fails.
	Watch(ctx context.Context, id string, f func(*skeinv1.Operation) error) error
}

// OperationRequest says what an operation must do. Names of projections are those of stores of the process.
type OperationRequest struct {
	Kind skeinv1.OperationKind
	// Projection is what it is about; empty means all, or none.
	Projection string
	// Projections are those of a snapshot; none: all.
	Projections []string
	// Partitions are those that it is restricted to; none: what the kind does by default.
	Partitions []uint32
	// Share is the part of one core's time that it may take; 0 means the default of the service.
	Share float64
	// Name is that of a snapshot; empty means the service chooses one.
	Name string
	// User is the id of the user to erase.
	User string
}

// Errors of an [Operator].
var (
	// ErrUnknownOperation: there is no such operation.
	ErrUnknownOperation = errors.New("gateway: there is no such operation")
	// ErrOperationAbsent: this process cannot do operations of the kind.
	ErrOperationAbsent = errors.New("gateway: there is no such work")
	// ErrInTheWay: another operation has to end first.
	ErrInTheWay = errors.New("gateway: another operation is in the way")
	// ErrNotPossible: the state of the service does not allow it.
	ErrNotPossible = errors.New("gateway: not possible as things are")
	// ErrUnknownNode: the cluster has no such node.
	ErrUnknownNode = errors.New("gateway: there is no such node")
)

// Refusal is why an [Operator] does not take a request.
type Refusal struct {
	// Why is ErrOperationAbsent, ErrInTheWay, ErrNotPossible or ErrUnknownNode.
	Why error
	// Text says it to people, and what to do.
	Text string
	// Operation is the id of the operation in the way.
	Operation string
}

// Error returns the text.
func (r *Refusal) Error() string { return r.Text }

// Unwrap returns why.
func (r *Refusal) Unwrap() error { return r.Why }
