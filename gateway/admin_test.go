package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// notebook is an operator that notes orders, and whose operations end when the test says so.
type notebook struct {
	mu      sync.Mutex
	orders  []operator.OperationRequest
	ops     []*skeinv1.Operation
	changed chan struct{}
}

func withOperator(n *notebook) func(*worldOptions) {
	n.changed = make(chan struct{})
	return func(o *worldOptions) { o.Operator = n }
}

// Start notes the order. Of the kinds it lacks one, and one is always in the way.
func (n *notebook) Start(_ context.Context, o operator.OperationRequest) (*skeinv1.Operation, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch o.Kind {
	case skeinv1.OperationKind_OPERATION_KIND_SNAPSHOT:
		return nil, &operator.Refusal{Cause: operator.ErrKindUnavailable, Text: "TakeSnapshot needs a place for snapshots"}
	case skeinv1.OperationKind_OPERATION_KIND_ROLLBACK:
		return nil, fmt.Errorf("wrapped: %w", &operator.Refusal{Cause: operator.ErrConflict, Text: "7 is in the way", Operation: "7"})
	}
	op := &skeinv1.Operation{
		OperationId: fmt.Sprintf("%03d", len(n.ops)), Kind: o.Kind, Projection: o.Projection,
		State: skeinv1.OperationState_OPERATION_STATE_RUNNING,
	}
	n.orders, n.ops = append(n.orders, o), append(n.ops, op)
	return op, nil
}

// Get finds an operation.
func (n *notebook) Get(_ context.Context, id string) (*skeinv1.Operation, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, op := range n.ops {
		if op.GetOperationId() == id {
			return op, nil
		}
	}
	return nil, operator.ErrUnknownOperation
}

// List lists the latest first.
func (n *notebook) List(
	_ context.Context, kind skeinv1.OperationKind, before string, limit int,
) (ops []*skeinv1.Operation, more bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, op := range slices.Backward(n.ops) {
		if before != "" && op.GetOperationId() >= before || kind != 0 && op.GetKind() != kind {
			continue
		}
		if len(ops) == limit {
			return ops, true, nil
		}
		ops = append(ops, op)
	}
	return ops, false, nil
}

// Cancel ends an operation.
func (n *notebook) Cancel(ctx context.Context, id string) (*skeinv1.Operation, error) {
	op, err := n.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	ended := &skeinv1.Operation{
		OperationId: id, Kind: op.GetKind(), State: skeinv1.OperationState_OPERATION_STATE_CANCELLED,
	}
	n.ops[slices.Index(n.ops, op)] = ended
	close(n.changed)
	n.changed = make(chan struct{})
	return ended, nil
}

// Watch follows an operation.
func (n *notebook) Watch(ctx context.Context, id string, f func(*skeinv1.Operation) error) error {
	for {
		n.mu.Lock()
		changed := n.changed
		n.mu.Unlock()
		op, err := n.Get(ctx, id)
		if err != nil {
			return err
		}
		if err := f(op); err != nil || op.GetState() != skeinv1.OperationState_OPERATION_STATE_RUNNING {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestOperatorsStartOperations(t *testing.T) {
	var n notebook
	w := newWorld(t, withOperator(&n), withFeeds)
	ask(w, w.admin.StartRebuild, &skeinv1.StartRebuildRequest{Projection: "graph", Partitions: []uint32{0, 255}, Share: 0.5})
	ask(w, w.admin.Verify, &skeinv1.VerifyRequest{Share: 1})
	ask(w, w.admin.Repair, &skeinv1.RepairRequest{Projection: "inbox", Partitions: []uint32{7}})
	res := ask(w, w.admin.EraseUser, &skeinv1.EraseUserRequest{UserId: "ann"})
	if res.GetOperation().GetOperationId() != "003" {
		t.Error(res)
	}
	ask(w, w.admin.EraseUser, &skeinv1.EraseUserRequest{UserIds: []string{"ann", "bob"}})
	want := []operator.OperationRequest{
		{Kind: skeinv1.OperationKind_OPERATION_KIND_REBUILD, Projection: "graph", Partitions: []uint32{0, 255}, Share: 0.5},
		{Kind: skeinv1.OperationKind_OPERATION_KIND_VERIFY, Share: 1},
		{Kind: skeinv1.OperationKind_OPERATION_KIND_REPAIR, Projection: "inbox", Partitions: []uint32{7}},
		{Kind: skeinv1.OperationKind_OPERATION_KIND_ERASE, Users: []string{"ann"}},
		{Kind: skeinv1.OperationKind_OPERATION_KIND_ERASE, Users: []string{"ann", "bob"}},
	}
	if diff := cmp.Diff(want, n.orders); diff != "" {
		t.Error(diff)
	}
}

func TestRefusedOperationsSayWhy(t *testing.T) {
	var n notebook
	w := newWorld(t, withOperator(&n))
	rebuild := func(req *skeinv1.StartRebuildRequest) error {
		_, err := w.admin.StartRebuild(t.Context(), connect.NewRequest(req))
		return err
	}
	wantError(t, rebuild(&skeinv1.StartRebuildRequest{}), connect.CodeInvalidArgument, "INVALID_FIELD", "projection")
	err := rebuild(&skeinv1.StartRebuildRequest{Projection: "seen"})
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "projection")
	if got := err.Error(); got != `invalid_argument: projection "seen" is no projection of this service: it has graph` {
		t.Error(got)
	}
	wantError(t, rebuild(&skeinv1.StartRebuildRequest{Projection: "graph", Partitions: []uint32{1, 256}}),
		connect.CodeInvalidArgument, "INVALID_FIELD", "partitions[1]")
	for _, share := range []float64{-0.1, 1.1} {
		wantError(t, rebuild(&skeinv1.StartRebuildRequest{Projection: "graph", Share: share}),
			connect.CodeInvalidArgument, "INVALID_FIELD", "share")
	}
	snapshot := func(req *skeinv1.TakeSnapshotRequest) error {
		_, err := w.admin.TakeSnapshot(t.Context(), connect.NewRequest(req))
		return err
	}
	wantError(t, snapshot(&skeinv1.TakeSnapshotRequest{Projections: []string{"graph", "x"}}),
		connect.CodeInvalidArgument, "INVALID_FIELD", "projections[1]")
	wantError(t, snapshot(&skeinv1.TakeSnapshotRequest{}), connect.CodeUnimplemented, "PROJECTION_UNAVAILABLE", "")
	_, err = w.admin.Rollback(t.Context(), connect.NewRequest(&skeinv1.RollbackRequest{Projection: "graph"}))
	wantError(t, err, connect.CodeFailedPrecondition, "OPERATION_CONFLICT", "")
	if d := detailsOf(t, err); d.info.GetMetadata()["operation_id"] != "7" || err.Error() != "failed_precondition: 7 is in the way" {
		t.Error(err, d.info)
	}
	for field, req := range map[string]*skeinv1.EraseUserRequest{
		"user_id":     {UserId: "a b"},
		"user_ids[1]": {UserIds: []string{"ann", "a b"}},
		"user_ids":    {UserIds: slices.Repeat([]string{"ann"}, 10_001)},
	} {
		_, err = w.admin.EraseUser(t.Context(), connect.NewRequest(req))
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", field)
	}
	_, err = w.admin.EraseUser(t.Context(), connect.NewRequest(&skeinv1.EraseUserRequest{UserId: "ann", UserIds: []string{"bob"}}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "user_id")
	_, err = w.admin.GetOperation(t.Context(), connect.NewRequest(&skeinv1.GetOperationRequest{OperationId: "x"}))
	wantError(t, err, connect.CodeNotFound, "UNKNOWN_OPERATION", "")
	_, err = w.admin.CancelOperation(t.Context(), connect.NewRequest(&skeinv1.CancelOperationRequest{OperationId: "x"}))
	wantError(t, err, connect.CodeNotFound, "UNKNOWN_OPERATION", "")
	if len(n.orders) > 0 {
		t.Error(n.orders)
	}
}

func TestListOperations(t *testing.T) {
	var n notebook
	w := newWorld(t, withOperator(&n))
	for range 5 {
		ask(w, w.admin.StartRebuild, &skeinv1.StartRebuildRequest{Projection: "graph"})
		ask(w, w.admin.Verify, &skeinv1.VerifyRequest{})
	}
	var got []string
	req := &skeinv1.ListOperationsRequest{Kind: skeinv1.OperationKind_OPERATION_KIND_REBUILD, PageSize: 2}
	for {
		res := ask(w, w.admin.ListOperations, req)
		for _, op := range res.GetOperations() {
			got = append(got, op.GetOperationId())
		}
		if len(got) == 2 { // what begins meanwhile shifts no page
			ask(w, w.admin.StartRebuild, &skeinv1.StartRebuildRequest{Projection: "graph"})
		}
		if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
		// The token of one list is of no use for another.
		_, err := w.admin.ListOperations(t.Context(), connect.NewRequest(&skeinv1.ListOperationsRequest{PageToken: req.GetPageToken()}))
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
	}
	if diff := cmp.Diff([]string{"008", "006", "004", "002", "000"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWatchOperation(t *testing.T) {
	var n notebook
	w := newWorld(t, withOperator(&n))
	watch := func(id string) *connect.ServerStreamForClient[skeinv1.WatchOperationResponse] {
		t.Helper()
		stream, err := w.admin.WatchOperation(t.Context(), connect.NewRequest(&skeinv1.WatchOperationRequest{OperationId: id}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stream.Close() })
		return stream
	}
	ask(w, w.admin.Verify, &skeinv1.VerifyRequest{})
	ask(w, w.admin.Verify, &skeinv1.VerifyRequest{})
	ends, stays := watch("000"), watch("001")
	if !ends.Receive() || !stays.Receive() {
		t.Fatal(ends.Err(), stays.Err())
	}
	ask(w, w.admin.CancelOperation, &skeinv1.CancelOperationRequest{OperationId: "000"})
	if !ends.Receive() || ends.Msg().GetOperation().GetState() != skeinv1.OperationState_OPERATION_STATE_CANCELLED {
		t.Error(ends.Msg(), ends.Err())
	}
	if ends.Receive() || ends.Err() != nil {
		t.Error("the stream of an operation that ended goes on", ends.Err())
	}
	unknown := watch("x")
	unknown.Receive()
	wantError(t, unknown.Err(), connect.CodeNotFound, "UNKNOWN_OPERATION", "")
	// The end of the service is not that of the operation.
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	for stays.Receive() {
	}
	wantError(t, stays.Err(), connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", "")
}
