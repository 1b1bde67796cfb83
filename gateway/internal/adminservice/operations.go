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

// operationsList is the kind of list in the page tokens of ListOperations. It never changes, and no
// other list has it.
const operationsList = 0xfa

// startOperation starts an operation. It refuses projections that this process does not have.
func (s *Service) startOperation(ctx context.Context, o operator.OperationRequest) (*skeinv1.Operation, error) {
	var violations []apierror.Violation
	if o.Projection != "" {
		violations = s.appendUnknownProjection(violations, "projection", o.Projection)
	}
	for i, name := range o.Projections {
		violations = s.appendUnknownProjection(violations, fmt.Sprintf("projections[%d]", i), name)
	}
	if len(violations) > 0 {
		return nil, apierror.Invalid(violations...)
	}
	return s.Operator.Start(ctx, o)
}

// appendUnknownProjection appends a violation of the field to violations if this process has no
// projection with the name.
func (s *Service) appendUnknownProjection(violations []apierror.Violation, field, name string) []apierror.Violation {
	names := make([]string, 0, len(s.All))
	for _, projection := range s.All {
		names = append(names, projection.Name())
	}
	if slices.Contains(names, name) {
		return violations
	}
	slices.Sort(names)
	return append(violations, apierror.InvalidField(
		field, "%q is no projection of this service: it has %s", name, strings.Join(names, ", ")))
}

// The methods below that start an operation return as soon as it has been accepted, and do not wait
// for its end. Clients follow it with GetOperation or WatchOperation.

// StartRebuild starts to build a new generation of a projection from the log.
func (s *Service) StartRebuild(
	ctx context.Context, req *skeinv1.StartRebuildRequest, _ *call.Info,
) (*skeinv1.StartRebuildResponse, error) {
	op, err := s.startOperation(ctx, operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_REBUILD, Projection: req.GetProjection(),
		Partitions: req.GetPartitions(), Share: req.GetShare(),
	})
	return &skeinv1.StartRebuildResponse{Operation: op}, err
}

// Verify starts to compare the rows of a projection with rows that are computed from the log.
func (s *Service) Verify(ctx context.Context, req *skeinv1.VerifyRequest, _ *call.Info) (*skeinv1.VerifyResponse, error) {
	op, err := s.startOperation(ctx, operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_VERIFY, Projection: req.GetProjection(),
		Partitions: req.GetPartitions(), Share: req.GetShare(),
	})
	return &skeinv1.VerifyResponse{Operation: op}, err
}

// Repair starts to replace the rows of some partitions of a projection with rows that are computed
// from the log.
func (s *Service) Repair(ctx context.Context, req *skeinv1.RepairRequest, _ *call.Info) (*skeinv1.RepairResponse, error) {
	op, err := s.startOperation(ctx, operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_REPAIR, Projection: req.GetProjection(),
		Partitions: req.GetPartitions(), Share: req.GetShare(),
	})
	return &skeinv1.RepairResponse{Operation: op}, err
}

// Rollback starts to serve the previous generation of a projection again.
func (s *Service) Rollback(
	ctx context.Context, req *skeinv1.RollbackRequest, _ *call.Info,
) (*skeinv1.RollbackResponse, error) {
	op, err := s.startOperation(ctx, operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_ROLLBACK, Projection: req.GetProjection(),
	})
	return &skeinv1.RollbackResponse{Operation: op}, err
}

// TakeSnapshot starts a snapshot of projections.
func (s *Service) TakeSnapshot(
	ctx context.Context, req *skeinv1.TakeSnapshotRequest, _ *call.Info,
) (*skeinv1.TakeSnapshotResponse, error) {
	op, err := s.startOperation(ctx, operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_SNAPSHOT, Projections: req.GetProjections(), Name: req.GetName(),
	})
	return &skeinv1.TakeSnapshotResponse{Operation: op}, err
}

// EraseUser starts to erase one user or many from the stores, the log and the archive.
func (s *Service) EraseUser(
	ctx context.Context, req *skeinv1.EraseUserRequest, _ *call.Info,
) (*skeinv1.EraseUserResponse, error) {
	users := req.GetUserIds()
	if req.GetUserId() != "" {
		users = []string{req.GetUserId()}
	}
	op, err := s.startOperation(ctx, operator.OperationRequest{Kind: skeinv1.OperationKind_OPERATION_KIND_ERASE, Users: users})
	return &skeinv1.EraseUserResponse{Operation: op}, err
}

// GetOperation returns the current state of an operation.
func (s *Service) GetOperation(
	ctx context.Context, req *skeinv1.GetOperationRequest, _ *call.Info,
) (*skeinv1.GetOperationResponse, error) {
	op, err := s.Operator.Get(ctx, req.GetOperationId())
	return &skeinv1.GetOperationResponse{Operation: op}, err
}

// CancelOperation asks an operation to end, and returns its state after that.
func (s *Service) CancelOperation(
	ctx context.Context, req *skeinv1.CancelOperationRequest, _ *call.Info,
) (*skeinv1.CancelOperationResponse, error) {
	op, err := s.Operator.Cancel(ctx, req.GetOperationId())
	return &skeinv1.CancelOperationResponse{Operation: op}, err
}

// ListOperations returns a page of operations, the latest first. The cursor in the page token is
// the id of the last operation of the page. A later operation has a higher id, so operations that
// start between two pages do not shift the second page.
func (s *Service) ListOperations(
	ctx context.Context, req *skeinv1.ListOperationsRequest, _ *call.Info,
) (*skeinv1.ListOperationsResponse, error) {
	id := pagetoken.NewListID(operationsList, req.GetKind().String())
	before, _, err := s.Resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return nil, err
	}
	operations, hasMore, err := s.Operator.List(ctx, req.GetKind(), string(before), call.PageSize(req.GetPageSize()))
	if err != nil {
		return nil, err
	}

	res := &skeinv1.ListOperationsResponse{Operations: operations}
	if hasMore {
		last := operations[len(operations)-1].GetOperationId()
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: id, Cursor: []byte(last)})
	}
	return res, nil
}

// WatchOperation sends the state of an operation now and after each change, until the operation has
// ended.
func (s *Service) WatchOperation(
	ctx context.Context, req *skeinv1.WatchOperationRequest, out call.Stream[skeinv1.WatchOperationResponse],
) error {
	return s.Operator.Watch(ctx, req.GetOperationId(), func(op *skeinv1.Operation) error {
		return out.Send(&skeinv1.WatchOperationResponse{Operation: op})
	})
}
