package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/pagetoken"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// Operator does the long work that AdminService is asked for. It knows operations by id; its methods are safe for
// concurrent use. What it does not take it answers with a [*Refusal], what it does not know with [ErrUnknownOperation].
type Operator interface {
	// Start begins an operation, or refuses to. It does not wait for the work.
	Start(ctx context.Context, o Order) (*skeinv1.Operation, error)
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

// Order is what an operation shall do. Names of projections are those of stores of the process.
type Order struct {
	Kind skeinv1.OperationKind
	// Projection is what it is about; empty: all, or none.
	Projection string
	// Projections are those of a snapshot; none: all.
	Projections []string
	// Partitions are those that it is restricted to; none: what the kind does by default.
	Partitions []uint32
	// Share is the part of one core's time that it may take; 0: the default of the service.
	Share float64
	// Name is that of a snapshot; empty: the service chooses one.
	Name string
	// User is who is erased.
	User string
}

// Errors of an [Operator].
var (
	// ErrUnknownOperation: there is no such operation.
	ErrUnknownOperation = errors.New("gateway: there is no such operation")
	// ErrWorkAbsent: this process cannot do work of the kind.
	ErrWorkAbsent = errors.New("gateway: there is no such work")
	// ErrInTheWay: another operation has to end first.
	ErrInTheWay = errors.New("gateway: another operation is in the way")
	// ErrStopping: the process takes no more orders.
	ErrStopping = errStopping
	// ErrNotPossible: the state of the service does not allow it.
	ErrNotPossible = errors.New("gateway: not possible as things are")
)

// Refusal is why an [Operator] does not take an order.
type Refusal struct {
	// Why is ErrWorkAbsent, ErrInTheWay or ErrNotPossible.
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

// explain gives an error the words of the refusal.
func (r *Refusal) explain(f *apierror.Failure) {
	f.Text = r.Text
	if r.Operation != "" {
		f.Metadata = map[string]string{"operation_id": r.Operation}
	}
}

// operationsList is the kind of the list of operations in its page tokens.
const operationsList = 0xfa

func (s *Server) mountOperations() {
	if s.operator == nil {
		return
	}
	unary(s, connectv1.AdminServiceStartRebuildProcedure, nil, s.startRebuild)
	unary(s, connectv1.AdminServiceVerifyProcedure, nil, s.verify)
	unary(s, connectv1.AdminServiceRepairProcedure, nil, s.repair)
	unary(s, connectv1.AdminServiceRollbackProcedure, nil, s.rollback)
	unary(s, connectv1.AdminServiceTakeSnapshotProcedure, nil, s.takeSnapshot)
	unary(s, connectv1.AdminServiceEraseUserProcedure, checkUser, s.eraseUser)
	unary(s, connectv1.AdminServiceGetOperationProcedure, nil, s.getOperation)
	unary(s, connectv1.AdminServiceListOperationsProcedure, nil, s.listOperations)
	unary(s, connectv1.AdminServiceCancelOperationProcedure, nil, s.cancelOperation)
	stream(s, connectv1.AdminServiceWatchOperationProcedure, nil, s.watchOperation)
}

// order starts an operation about projections that the process has.
func (s *Server) order(ctx context.Context, o Order) (*skeinv1.Operation, error) {
	var found []apierror.Violation
	if o.Projection != "" {
		found = s.known(found, "projection", o.Projection)
	}
	for i, name := range o.Projections {
		found = s.known(found, fmt.Sprintf("projections[%d]", i), name)
	}
	if len(found) > 0 {
		return nil, apierror.Invalid(found...)
	}
	return s.operator.Start(ctx, o)
}

// known demands that the process has a projection.
func (s *Server) known(found []apierror.Violation, field, name string) []apierror.Violation {
	names := make([]string, 0, len(s.stores))
	for _, store := range s.stores {
		names = append(names, store.Name())
	}
	if slices.Contains(names, name) {
		return found
	}
	slices.Sort(names)
	return append(found, apierror.InvalidField(field, "%q is no projection of this service: it has %s", name, strings.Join(names, ", ")))
}

func (s *Server) startRebuild(
	ctx context.Context, req *skeinv1.StartRebuildRequest, _ *extra,
) (*skeinv1.StartRebuildResponse, error) {
	op, err := s.order(ctx, Order{
		Kind: skeinv1.OperationKind_OPERATION_KIND_REBUILD, Projection: req.GetProjection(),
		Partitions: req.GetPartitions(), Share: req.GetShare(),
	})
	return &skeinv1.StartRebuildResponse{Operation: op}, err
}

func (s *Server) verify(ctx context.Context, req *skeinv1.VerifyRequest, _ *extra) (*skeinv1.VerifyResponse, error) {
	op, err := s.order(ctx, Order{
		Kind: skeinv1.OperationKind_OPERATION_KIND_VERIFY, Projection: req.GetProjection(),
		Partitions: req.GetPartitions(), Share: req.GetShare(),
	})
	return &skeinv1.VerifyResponse{Operation: op}, err
}

func (s *Server) repair(ctx context.Context, req *skeinv1.RepairRequest, _ *extra) (*skeinv1.RepairResponse, error) {
	op, err := s.order(ctx, Order{
		Kind: skeinv1.OperationKind_OPERATION_KIND_REPAIR, Projection: req.GetProjection(),
		Partitions: req.GetPartitions(), Share: req.GetShare(),
	})
	return &skeinv1.RepairResponse{Operation: op}, err
}

func (s *Server) rollback(
	ctx context.Context, req *skeinv1.RollbackRequest, _ *extra,
) (*skeinv1.RollbackResponse, error) {
	op, err := s.order(ctx, Order{Kind: skeinv1.OperationKind_OPERATION_KIND_ROLLBACK, Projection: req.GetProjection()})
	return &skeinv1.RollbackResponse{Operation: op}, err
}

func (s *Server) takeSnapshot(
	ctx context.Context, req *skeinv1.TakeSnapshotRequest, _ *extra,
) (*skeinv1.TakeSnapshotResponse, error) {
	o := Order{
		Kind: skeinv1.OperationKind_OPERATION_KIND_SNAPSHOT, Projections: req.GetProjections(), Name: req.GetName(),
	}
	op, err := s.order(ctx, o)
	return &skeinv1.TakeSnapshotResponse{Operation: op}, err
}

func (s *Server) eraseUser(
	ctx context.Context, req *skeinv1.EraseUserRequest, _ *extra,
) (*skeinv1.EraseUserResponse, error) {
	op, err := s.order(ctx, Order{Kind: skeinv1.OperationKind_OPERATION_KIND_ERASE, User: req.GetUserId()})
	return &skeinv1.EraseUserResponse{Operation: op}, err
}

func (s *Server) getOperation(
	ctx context.Context, req *skeinv1.GetOperationRequest, _ *extra,
) (*skeinv1.GetOperationResponse, error) {
	op, err := s.operator.Get(ctx, req.GetOperationId())
	return &skeinv1.GetOperationResponse{Operation: op}, err
}

func (s *Server) cancelOperation(
	ctx context.Context, req *skeinv1.CancelOperationRequest, _ *extra,
) (*skeinv1.CancelOperationResponse, error) {
	op, err := s.operator.Cancel(ctx, req.GetOperationId())
	return &skeinv1.CancelOperationResponse{Operation: op}, err
}

// listOperations goes by ids, which are by time: what is started meanwhile shifts no page.
func (s *Server) listOperations(
	ctx context.Context, req *skeinv1.ListOperationsRequest, _ *extra,
) (*skeinv1.ListOperationsResponse, error) {
	id := pagetoken.NewListID(operationsList, req.GetKind().String())
	before, _, err := s.resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return nil, err
	}
	ops, more, err := s.operator.List(ctx, req.GetKind(), string(before), pageSize(req.GetPageSize()))
	if err != nil {
		return nil, err
	}
	res := &skeinv1.ListOperationsResponse{Operations: ops}
	if more {
		res.NextPageToken = s.keys.Sign(pagetoken.Token{List: id, Cursor: []byte(ops[len(ops)-1].GetOperationId())})
	}
	return res, nil
}

func (s *Server) watchOperation(
	ctx context.Context, req *skeinv1.WatchOperationRequest, out *connect.ServerStream[skeinv1.WatchOperationResponse],
) error {
	return s.operator.Watch(ctx, req.GetOperationId(), func(op *skeinv1.Operation) error {
		return sendTo(ctx, out, &skeinv1.WatchOperationResponse{Operation: op})
	})
}
