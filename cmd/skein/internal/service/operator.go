package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/gateway"
	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/operation"
)

// operationsDir is the directory of operations below the data directory.
const operationsDir = "operations"

// OfferedOperation is a kind of operation that this process can do.
type OfferedOperation struct {
	// Prepare checks a request and returns the function that does the operation. It must be quick. It returns a [*operator.Refusal] for a
	// request that is not possible at present.
	Prepare func(r operator.OperationRequest) (operation.Func, error)
	// Resumes reports whether the same request continues after a restart of the process. Other operations fail then.
	Resumes bool
}

// OfferedOperations are the kinds that this process can do.
type OfferedOperations map[operation.Kind]OfferedOperation

// absentOperations has, for kinds that not every process offers, what they require.
var operationRequirements = map[operation.Kind]string{
	operation.Snapshot: "TakeSnapshot needs a place for snapshots, which this process does not have: start it with --snapshots",
	operation.Erase:    "EraseUser needs the archive of the log, which this process does not have: start it with --archive",
}

var operationKinds = map[skeinv1.OperationKind]operation.Kind{
	skeinv1.OperationKind_OPERATION_KIND_REBUILD:  operation.Rebuild,
	skeinv1.OperationKind_OPERATION_KIND_VERIFY:   operation.Verify,
	skeinv1.OperationKind_OPERATION_KIND_REPAIR:   operation.Repair,
	skeinv1.OperationKind_OPERATION_KIND_ROLLBACK: operation.Rollback,
	skeinv1.OperationKind_OPERATION_KIND_SNAPSHOT: operation.Snapshot,
	skeinv1.OperationKind_OPERATION_KIND_ERASE:    operation.Erase,
}

var operationStates = map[operation.State]skeinv1.OperationState{
	operation.Pending:   skeinv1.OperationState_OPERATION_STATE_PENDING,
	operation.Running:   skeinv1.OperationState_OPERATION_STATE_RUNNING,
	operation.Succeeded: skeinv1.OperationState_OPERATION_STATE_SUCCEEDED,
	operation.Failed:    skeinv1.OperationState_OPERATION_STATE_FAILED,
	operation.Cancelled: skeinv1.OperationState_OPERATION_STATE_CANCELLED,
}

// processOperator gives the gateway the operations of the process. It implements [operator.Operator].
type processOperator struct {
	manager *operation.Manager
	offered OfferedOperations
}

// newOperator returns the operator of a process, and sets how operations continue after a restart. It must be called before they run.
func newOperator(manager *operation.Manager, offered OfferedOperations) *processOperator {
	for kind, offer := range offered {
		if !offer.Resumes {
			continue
		}
		manager.OnRestart(kind, func(i operation.Info) (operation.Func, error) {
			var a requestArgs
			if err := json.Unmarshal(i.Args, &a); err != nil {
				return nil, fmt.Errorf("its request: %w", err)
			}
			return offer.Prepare(a.request(i))
		})
	}
	return &processOperator{manager: manager, offered: offered}
}

// requestArgs is the encoding of a request in the file of its operation, beside kind and projection. Fields may be added, never removed.
type requestArgs struct {
	Projections []string `json:"projections,omitempty"`
	Partitions  []uint32 `json:"partitions,omitempty"`
	Share       float64  `json:"share,omitempty"`
	Name        string   `json:"name,omitempty"`
	User        string   `json:"user,omitempty"`
}

func (a requestArgs) request(i operation.Info) operator.OperationRequest {
	return operator.OperationRequest{
		Kind: protoKind(i.Kind), Projection: i.Projection, Projections: a.Projections, Partitions: a.Partitions,
		Share: a.Share, Name: a.Name, User: a.User,
	}
}

func protoKind(k operation.Kind) skeinv1.OperationKind {
	for proto, kind := range operationKinds {
		if kind == k {
			return proto
		}
	}
	return skeinv1.OperationKind_OPERATION_KIND_UNSPECIFIED
}

// Start is part of gateway.Operator.
func (o *processOperator) Start(_ context.Context, r operator.OperationRequest) (*skeinv1.Operation, error) {
	kind := operationKinds[r.Kind]
	offer, ok := o.offered[kind]
	if !ok {
		return nil, &operator.Refusal{Cause: operator.ErrKindUnavailable, Text: operationRequirements[kind]}
	}
	if r.Projection == "" && len(r.Projections) == 1 {
		r.Projection = r.Projections[0]
	}
	run, err := offer.Prepare(r)
	if err != nil {
		return nil, err
	}
	i, err := o.manager.Start(kind, r.Projection, requestArgs{
		Projections: r.Projections, Partitions: r.Partitions, Share: r.Share, Name: r.Name, User: r.User,
	}, run)
	return protoOperationOrError(i, err)
}

// Get is part of gateway.Operator.
func (o *processOperator) Get(_ context.Context, id string) (*skeinv1.Operation, error) {
	return protoOperationOrError(o.manager.Get(id))
}

// Cancel is part of gateway.Operator.
func (o *processOperator) Cancel(_ context.Context, id string) (*skeinv1.Operation, error) {
	return protoOperationOrError(o.manager.Cancel(id))
}

// List is part of gateway.Operator.
func (o *processOperator) List(
	_ context.Context, kind skeinv1.OperationKind, before string, n int,
) (ops []*skeinv1.Operation, more bool, err error) {
	found, more := o.manager.List(operationKinds[kind], before, n)
	for _, i := range found {
		ops = append(ops, protoOperation(i))
	}
	return ops, more, nil
}

// Watch is part of gateway.Operator.
func (o *processOperator) Watch(ctx context.Context, id string, f func(*skeinv1.Operation) error) error {
	return operatorError(o.manager.Watch(ctx, id, func(i operation.Info) error { return f(protoOperation(i)) }))
}

func protoOperationOrError(i operation.Info, err error) (*skeinv1.Operation, error) {
	if err != nil {
		return nil, operatorError(err)
	}
	return protoOperation(i), nil
}

// refused translates an error of package operation into one of the gateway.
func operatorError(err error) error {
	conflict, inTheWay := errors.AsType[*operation.ConflictError](err)
	switch {
	case inTheWay:
		return &operator.Refusal{Cause: operator.ErrConflict, Text: err.Error(), Operation: conflict.With.ID}
	case errors.Is(err, operation.ErrNotFound):
		return fmt.Errorf("%w: %w", operator.ErrUnknownOperation, err)
	case errors.Is(err, operation.ErrClosed):
		return fmt.Errorf("%w: %w", gateway.ErrStopping, err)
	}
	return err
}

func protoOperation(i operation.Info) *skeinv1.Operation {
	op := &skeinv1.Operation{
		OperationId: i.ID, Kind: protoKind(i.Kind), Projection: i.Projection, State: operationStates[i.State],
		CreateTime: timestamppb.New(i.Created), Phase: string(i.Phase), Done: i.Done, Total: i.Total, Unit: i.Unit, Rate: i.Rate,
		Error: i.Error, Report: i.Report,
	}
	if !i.Ended.IsZero() {
		op.EndTime = timestamppb.New(i.Ended)
	}
	if i.Remaining >= 0 {
		seconds := i.Remaining.Seconds()
		op.RemainingSeconds = &seconds
	}
	return op
}
