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

// operationsDir is the directory below the data directory in which the state of operations is kept.
const operationsDir = "operations"

// OfferedOperation is a kind of operation that this process can perform.
type OfferedOperation struct {
	// Prepare checks a request and returns the function that performs the operation. Prepare must
	// return quickly. It returns a [*operator.Refusal] for a request that is not possible at
	// present. It may add to the request what the operation must know when it continues after a
	// restart.
	Prepare func(r *operator.OperationRequest) (operation.Func, error)
	// Resumes says that the operation starts again, with the same request, after a restart of the
	// process. Other operations fail then.
	Resumes bool
}

// OfferedOperations are the kinds of operations that this process can perform.
type OfferedOperations map[operation.Kind]OfferedOperation

// operationRequirements says, for each kind that not every process offers, what the process must
// have.
var operationRequirements = map[operation.Kind]string{
	operation.Snapshot: "TakeSnapshot needs a target for snapshots, and this process has none: start it with --snapshots",
	operation.Erase:    "EraseUser needs the archive of the log, and this process has none: start it with --archive",
}

// operationKinds maps the kinds of the API to those of package operation.
var operationKinds = map[skeinv1.OperationKind]operation.Kind{
	skeinv1.OperationKind_OPERATION_KIND_REBUILD:  operation.Rebuild,
	skeinv1.OperationKind_OPERATION_KIND_VERIFY:   operation.Verify,
	skeinv1.OperationKind_OPERATION_KIND_REPAIR:   operation.Repair,
	skeinv1.OperationKind_OPERATION_KIND_ROLLBACK: operation.Rollback,
	skeinv1.OperationKind_OPERATION_KIND_SNAPSHOT: operation.Snapshot,
	skeinv1.OperationKind_OPERATION_KIND_ERASE:    operation.Erase,
}

// operationStates maps the states of package operation to those of the API.
var operationStates = map[operation.State]skeinv1.OperationState{
	operation.Pending:   skeinv1.OperationState_OPERATION_STATE_PENDING,
	operation.Running:   skeinv1.OperationState_OPERATION_STATE_RUNNING,
	operation.Succeeded: skeinv1.OperationState_OPERATION_STATE_SUCCEEDED,
	operation.Failed:    skeinv1.OperationState_OPERATION_STATE_FAILED,
	operation.Cancelled: skeinv1.OperationState_OPERATION_STATE_CANCELLED,
}

// processOperator starts, lists and cancels the operations of the process for the gateway. It
// implements [operator.Operator].
type processOperator struct {
	manager *operation.Manager
	offered OfferedOperations
}

// newOperator returns the operator of a process. It also registers how operations of an earlier
// process resume, so it must be called before the manager runs.
func newOperator(manager *operation.Manager, offered OfferedOperations) *processOperator {
	for kind, offer := range offered {
		if !offer.Resumes {
			continue
		}
		manager.OnRestart(kind, func(i operation.Info) (operation.Func, error) {
			var args requestArgs
			if err := json.Unmarshal(i.Args, &args); err != nil {
				return nil, fmt.Errorf("decode its request: %w", err)
			}
			r := args.request(i)
			r.Resumed = true
			return offer.Prepare(&r)
		})
	}
	return &processOperator{manager: manager, offered: offered}
}

// requestArgs is the part of a request that the file of its operation has as JSON, besides kind and
// projection. Fields may be added, but not removed: a newer version of the program must be able to
// resume the operation.
type requestArgs struct {
	Projections []string `json:"projections,omitempty"`
	Partitions  []uint32 `json:"partitions,omitempty"`
	Share       float64  `json:"share,omitempty"`
	Name        string   `json:"name,omitempty"`
	Users       []string `json:"users,omitempty"`
	Generation  uint32   `json:"generation,omitempty"`
	// User is what programs wrote that did not have Users yet.
	User string `json:"user,omitempty"`
}

// request returns the request of an operation.
func (a requestArgs) request(i operation.Info) operator.OperationRequest {
	if a.User != "" {
		a.Users = []string{a.User}
	}
	return operator.OperationRequest{
		Kind:        protoKind(i.Kind),
		Projection:  i.Projection,
		Projections: a.Projections,
		Partitions:  a.Partitions,
		Share:       a.Share,
		Name:        a.Name,
		Users:       a.Users,
		Generation:  a.Generation,
	}
}

// protoKind returns the kind of the API for one of package operation.
func protoKind(k operation.Kind) skeinv1.OperationKind {
	for proto, kind := range operationKinds {
		if kind == k {
			return proto
		}
	}
	return skeinv1.OperationKind_OPERATION_KIND_UNSPECIFIED
}

// Start is part of [operator.Operator].
func (o *processOperator) Start(_ context.Context, r operator.OperationRequest) (*skeinv1.Operation, error) {
	kind := operationKinds[r.Kind]
	offer, ok := o.offered[kind]
	if !ok {
		return nil, &operator.Refusal{Cause: operator.ErrKindUnavailable, Text: operationRequirements[kind]}
	}
	// A list of operations shows the projection of an operation on one projection, whichever field
	// of the request has it.
	if r.Projection == "" && len(r.Projections) == 1 {
		r.Projection = r.Projections[0]
	}

	run, err := offer.Prepare(&r)
	if err != nil {
		return nil, err
	}
	i, err := o.manager.Start(kind, r.Projection, requestArgs{
		Projections: r.Projections, Partitions: r.Partitions, Share: r.Share, Name: r.Name, Users: r.Users, Generation: r.Generation,
	}, run)
	return protoOperationOrError(i, err)
}

// Get is part of [operator.Operator].
func (o *processOperator) Get(_ context.Context, id string) (*skeinv1.Operation, error) {
	return protoOperationOrError(o.manager.Get(id))
}

// Cancel is part of [operator.Operator].
func (o *processOperator) Cancel(_ context.Context, id string) (*skeinv1.Operation, error) {
	return protoOperationOrError(o.manager.Cancel(id))
}

// List is part of [operator.Operator].
func (o *processOperator) List(
	_ context.Context, kind skeinv1.OperationKind, before string, n int,
) (ops []*skeinv1.Operation, more bool, err error) {
	found, more := o.manager.List(operationKinds[kind], before, n)
	for _, i := range found {
		ops = append(ops, protoOperation(i))
	}
	return ops, more, nil
}

// Watch is part of [operator.Operator].
func (o *processOperator) Watch(ctx context.Context, id string, f func(*skeinv1.Operation) error) error {
	return operatorError(o.manager.Watch(ctx, id, func(i operation.Info) error { return f(protoOperation(i)) }))
}

// protoOperationOrError returns the results of a method of the manager as those of an
// [operator.Operator].
func protoOperationOrError(i operation.Info, err error) (*skeinv1.Operation, error) {
	if err != nil {
		return nil, operatorError(err)
	}
	return protoOperation(i), nil
}

// operatorError translates an error of package operation into one of package operator.
func operatorError(err error) error {
	if conflict, ok := errors.AsType[*operation.ConflictError](err); ok {
		return &operator.Refusal{Cause: operator.ErrConflict, Text: err.Error(), Operation: conflict.With.ID}
	}
	switch {
	case errors.Is(err, operation.ErrNotFound):
		return fmt.Errorf("%w: %w", operator.ErrUnknownOperation, err)
	case errors.Is(err, operation.ErrClosed):
		return fmt.Errorf("%w: %w", gateway.ErrStopping, err)
	}
	return err
}

// protoOperation returns an operation as the API has it.
func protoOperation(i operation.Info) *skeinv1.Operation {
	op := &skeinv1.Operation{
		OperationId: i.ID,
		Kind:        protoKind(i.Kind),
		Projection:  i.Projection,
		State:       operationStates[i.State],
		CreateTime:  timestamppb.New(i.Created),
		Phase:       string(i.Phase),
		Done:        i.Done,
		Total:       i.Total,
		Unit:        i.Unit,
		Rate:        i.Rate,
		Error:       i.Error,
		Report:      i.Report,
	}
	if !i.Ended.IsZero() {
		op.EndTime = timestamppb.New(i.Ended)
	}
	if i.Remaining >= 0 { // a negative value means unknown
		seconds := i.Remaining.Seconds()
		op.RemainingSeconds = &seconds
	}
	return op
}
