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

// Job is one kind of long work.
type Job struct {
	// Do checks an order and returns its work. It must be quick. It returns a [*gateway.Refusal] for an order that is not possible at
	// present.
	Do func(o operator.Order) (operation.Work, error)
	// Resumes reports whether the same order continues after a restart of the process. Other work fails then.
	Resumes bool
}

// Jobs are the kinds that this process can do.
type Jobs map[operation.Kind]Job

// absentJobs has, for kinds that not every process offers, what they require.
var absentJobs = map[operation.Kind]string{
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

// orders gives the gateway the operations of the process.
type orders struct {
	ops  *operation.Manager
	jobs Jobs
}

// newOrders returns the orders of a process, and sets how operations continue after a restart. It must be called before they run.
func newOrders(ops *operation.Manager, w Jobs) *orders {
	for kind, one := range w {
		if !one.Resumes {
			continue
		}
		ops.OnRestart(kind, func(i operation.Info) (operation.Work, error) {
			var a orderArgs
			if err := json.Unmarshal(i.Args, &a); err != nil {
				return nil, fmt.Errorf("its order: %w", err)
			}
			return one.Do(a.order(i))
		})
	}
	return &orders{ops: ops, jobs: w}
}

// orderArgs is the encoding of an order in the file of its operation, beside kind and projection. Fields may be added, never removed.
type orderArgs struct {
	Projections []string `json:"projections,omitempty"`
	Partitions  []uint32 `json:"partitions,omitempty"`
	Share       float64  `json:"share,omitempty"`
	Name        string   `json:"name,omitempty"`
	User        string   `json:"user,omitempty"`
}

func (a orderArgs) order(i operation.Info) operator.Order {
	return operator.Order{
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
func (o *orders) Start(_ context.Context, order operator.Order) (*skeinv1.Operation, error) {
	kind := operationKinds[order.Kind]
	one, ok := o.jobs[kind]
	if !ok {
		return nil, &operator.Refusal{Why: operator.ErrWorkAbsent, Text: absentJobs[kind]}
	}
	if order.Projection == "" && len(order.Projections) == 1 {
		order.Projection = order.Projections[0]
	}
	do, err := one.Do(order)
	if err != nil {
		return nil, err
	}
	i, err := o.ops.Do(kind, order.Projection, orderArgs{
		Projections: order.Projections, Partitions: order.Partitions, Share: order.Share, Name: order.Name, User: order.User,
	}, do)
	return answered(i, err)
}

// Get is part of gateway.Operator.
func (o *orders) Get(_ context.Context, id string) (*skeinv1.Operation, error) {
	return answered(o.ops.Get(id))
}

// Cancel is part of gateway.Operator.
func (o *orders) Cancel(_ context.Context, id string) (*skeinv1.Operation, error) {
	return answered(o.ops.Cancel(id))
}

// List is part of gateway.Operator.
func (o *orders) List(
	_ context.Context, kind skeinv1.OperationKind, before string, n int,
) (ops []*skeinv1.Operation, more bool, err error) {
	found, more := o.ops.List(operationKinds[kind], before, n)
	for _, i := range found {
		ops = append(ops, protoOperation(i))
	}
	return ops, more, nil
}

// Watch is part of gateway.Operator.
func (o *orders) Watch(ctx context.Context, id string, f func(*skeinv1.Operation) error) error {
	return refused(o.ops.Watch(ctx, id, func(i operation.Info) error { return f(protoOperation(i)) }))
}

func answered(i operation.Info, err error) (*skeinv1.Operation, error) {
	if err != nil {
		return nil, refused(err)
	}
	return protoOperation(i), nil
}

// refused translates an error of package operation into one of the gateway.
func refused(err error) error {
	conflict, inTheWay := errors.AsType[*operation.ConflictError](err)
	switch {
	case inTheWay:
		return &operator.Refusal{Why: operator.ErrInTheWay, Text: err.Error(), Operation: conflict.With.ID}
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
		CreateTime: timestamppb.New(i.Created), Done: i.Done, Total: i.Total, Unit: i.Unit, Rate: i.Rate,
		Error: i.Error, Report: i.Report, LogEvents: i.Build.Events, LogBytes: i.Build.Bytes, Partitions: i.Build.Partitions,
		TotalPartitions: i.Build.AllPartitions,
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
