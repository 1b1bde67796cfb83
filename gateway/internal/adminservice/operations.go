package adminservice

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/operator"
	"github.com/skein-feed/skein/gateway/pagetoken"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// operationsList is the kind of the list of operations in its page tokens.
const operationsList = 0xfa

// start starts an operation about projections that the process has.
func (s *Service) start(ctx context.Context, o operator.OperationRequest) (*skeinv1.Operation, error) {
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
	return s.Operator.Start(ctx, o)
}

// known demands that the process has a projection.
func (s *Service) known(found []apierror.Violation, field, name string) []apierror.Violation {
	names := make([]string, 0, len(s.All))
	for _, store := range s.All {
		names = append(names, store.Name())
	}
	if slices.Contains(names, name) {
		return found
	}
	slices.Sort(names)
	return append(found, apierror.InvalidField(field, "%q is no projection of this service: it has %s", name, strings.Join(names, ", ")))
}

// StartRebuild starts to build a projection again.
func (s *Service) StartRebuild(
	ctx context.Context, req *skeinv1.StartRebuildRequest, _ *call.Info,
) (*skeinv1.StartRebuildResponse, error) {
	op, err := s.start(ctx, operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_REBUILD, Projection: req.GetProjection(),
		Partitions: req.GetPartitions(), Share: req.GetShare(),
	})
	return &skeinv1.StartRebuildResponse{Operation: op}, err
}

// Verify starts to compare a projection with what the log makes of it.
func (s *Service) Verify(ctx context.Context, req *skeinv1.VerifyRequest, _ *call.Info) (*skeinv1.VerifyResponse, error) {
	op, err := s.start(ctx, operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_VERIFY, Projection: req.GetProjection(),
		Partitions: req.GetPartitions(), Share: req.GetShare(),
	})
	return &skeinv1.VerifyResponse{Operation: op}, err
}

// Repair starts to replace partitions of a projection.
func (s *Service) Repair(ctx context.Context, req *skeinv1.RepairRequest, _ *call.Info) (*skeinv1.RepairResponse, error) {
	op, err := s.start(ctx, operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_REPAIR, Projection: req.GetProjection(),
		Partitions: req.GetPartitions(), Share: req.GetShare(),
	})
	return &skeinv1.RepairResponse{Operation: op}, err
}

// Rollback starts to serve the previous generation of a projection.
func (s *Service) Rollback(
	ctx context.Context, req *skeinv1.RollbackRequest, _ *call.Info,
) (*skeinv1.RollbackResponse, error) {
	op, err := s.start(ctx, operator.OperationRequest{Kind: skeinv1.OperationKind_OPERATION_KIND_ROLLBACK, Projection: req.GetProjection()})
	return &skeinv1.RollbackResponse{Operation: op}, err
}

// TakeSnapshot starts a snapshot.
func (s *Service) TakeSnapshot(
	ctx context.Context, req *skeinv1.TakeSnapshotRequest, _ *call.Info,
) (*skeinv1.TakeSnapshotResponse, error) {
	o := operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_SNAPSHOT, Projections: req.GetProjections(), Name: req.GetName(),
	}
	op, err := s.start(ctx, o)
	return &skeinv1.TakeSnapshotResponse{Operation: op}, err
}

// EraseUser starts to erase a user.
func (s *Service) EraseUser(
	ctx context.Context, req *skeinv1.EraseUserRequest, _ *call.Info,
) (*skeinv1.EraseUserResponse, error) {
	op, err := s.start(ctx, operator.OperationRequest{Kind: skeinv1.OperationKind_OPERATION_KIND_ERASE, User: req.GetUserId()})
	return &skeinv1.EraseUserResponse{Operation: op}, err
}

// GetOperation returns an operation as it is.
func (s *Service) GetOperation(
	ctx context.Context, req *skeinv1.GetOperationRequest, _ *call.Info,
) (*skeinv1.GetOperationResponse, error) {
	op, err := s.Operator.Get(ctx, req.GetOperationId())
	return &skeinv1.GetOperationResponse{Operation: op}, err
}

// CancelOperation asks an operation to end.
func (s *Service) CancelOperation(
	ctx context.Context, req *skeinv1.CancelOperationRequest, _ *call.Info,
) (*skeinv1.CancelOperationResponse, error) {
	op, err := s.Operator.Cancel(ctx, req.GetOperationId())
	return &skeinv1.CancelOperationResponse{Operation: op}, err
}

// ListOperations goes by ids, which are by time: what is started meanwhile shifts no page.
func (s *Service) ListOperations(
	ctx context.Context, req *skeinv1.ListOperationsRequest, _ *call.Info,
) (*skeinv1.ListOperationsResponse, error) {
	id := pagetoken.NewListID(operationsList, req.GetKind().String())
	before, _, err := s.Resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return nil, err
	}
	ops, more, err := s.Operator.List(ctx, req.GetKind(), string(before), call.PageSize(req.GetPageSize()))
	if err != nil {
		return nil, err
	}
	res := &skeinv1.ListOperationsResponse{Operations: ops}
	if more {
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: id, Cursor: []byte(ops[len(ops)-1].GetOperationId())})
	}
	return res, nil
}

// WatchOperation sends an operation after each change, until it has ended.
func (s *Service) WatchOperation(
	ctx context.Context, req *skeinv1.WatchOperationRequest, out call.Stream[skeinv1.WatchOperationResponse],
) error {
	return s.Operator.Watch(ctx, req.GetOperationId(), func(op *skeinv1.Operation) error {
		return out.Send(&skeinv1.WatchOperationResponse{Operation: op})
	})
}
