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

// notebook is an operator that records requests for operations. Its operations run until they are
// cancelled.
type notebook struct {
	mu       sync.Mutex
	requests []operator.OperationRequest
	ops      []*skeinv1.Operation
	// changed is closed, and replaced, when an operation changes.
	changed chan struct{}
}

func withOperator(n *notebook) func(*worldOptions) {
	n.changed = make(chan struct{})
	return func(o *worldOptions) { o.Operator = n }
}

// Start records the request. Snapshots are not available, and rollbacks always conflict with
// operation 7.
func (n *notebook) Start(_ context.Context, req operator.OperationRequest) (*skeinv1.Operation, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch req.Kind {
	case skeinv1.OperationKind_OPERATION_KIND_SNAPSHOT:
		return nil, &operator.Refusal{Cause: operator.ErrKindUnavailable, Text: "TakeSnapshot needs a place for snapshots"}
	case skeinv1.OperationKind_OPERATION_KIND_ROLLBACK:
		return nil, fmt.Errorf("wrapped: %w", &operator.Refusal{Cause: operator.ErrConflict, Text: "7 is in the way", Operation: "7"})
	}

	op := &skeinv1.Operation{
		OperationId: fmt.Sprintf("%03d", len(n.ops)),
		Kind:        req.Kind,
		Projection:  req.Projection,
		State:       skeinv1.OperationState_OPERATION_STATE_RUNNING,
	}
	n.requests = append(n.requests, req)
	n.ops = append(n.ops, op)
	return op, nil
}

// Get returns the operation with the id.
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

// List returns operations from the latest to the earliest.
func (n *notebook) List(
	_ context.Context, kind skeinv1.OperationKind, before string, limit int,
) (ops []*skeinv1.Operation, more bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, op := range slices.Backward(n.ops) {
		if before != "" && op.GetOperationId() >= before {
			continue
		}
		if kind != 0 && op.GetKind() != kind {
			continue
		}
		if len(ops) == limit {
			return ops, true, nil
		}
		ops = append(ops, op)
	}
	return ops, false, nil
}

// Cancel ends the operation.
func (n *notebook) Cancel(ctx context.Context, id string) (*skeinv1.Operation, error) {
	op, err := n.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	cancelled := &skeinv1.Operation{
		OperationId: id, Kind: op.GetKind(), State: skeinv1.OperationState_OPERATION_STATE_CANCELLED,
	}
	n.ops[slices.Index(n.ops, op)] = cancelled
	close(n.changed)
	n.changed = make(chan struct{})
	return cancelled, nil
}

// Watch calls f with the operation now and after each change, until the operation has ended.
func (n *notebook) Watch(ctx context.Context, id string, f func(*skeinv1.Operation) error) error {
	for {
		// Take the channel before the operation, so that no change between the two is missed.
		n.mu.Lock()
		changed := n.changed
		n.mu.Unlock()

		op, err := n.Get(ctx, id)
		if err != nil {
			return err
		}
		if err := f(op); err != nil {
			return err
		}
		if op.GetState() != skeinv1.OperationState_OPERATION_STATE_RUNNING {
			return nil
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
	if got := res.GetOperation().GetOperationId(); got != "003" {
		t.Errorf("EraseUser: got the operation %q, want 003: the fourth", got)
	}
	ask(w, w.admin.EraseUser, &skeinv1.EraseUserRequest{UserIds: []string{"ann", "bob"}})

	want := []operator.OperationRequest{
		{Kind: skeinv1.OperationKind_OPERATION_KIND_REBUILD, Projection: "graph", Partitions: []uint32{0, 255}, Share: 0.5},
		{Kind: skeinv1.OperationKind_OPERATION_KIND_VERIFY, Share: 1},
		{Kind: skeinv1.OperationKind_OPERATION_KIND_REPAIR, Projection: "inbox", Partitions: []uint32{7}},
		{Kind: skeinv1.OperationKind_OPERATION_KIND_ERASE, Users: []string{"ann"}},
		{Kind: skeinv1.OperationKind_OPERATION_KIND_ERASE, Users: []string{"ann", "bob"}},
	}
	if diff := cmp.Diff(want, n.requests); diff != "" {
		t.Errorf("requests that the operator got (-want +got)\n%s", diff)
	}
}

func TestRefusedOperationsSayWhy(t *testing.T) {
	var n notebook
	w := newWorld(t, withOperator(&n))

	// Requests that the server refuses before the operator gets them.
	for name, c := range map[string]struct {
		call      func() error
		wantField string
	}{
		"rebuild without a projection": {
			func() error { return callExpectingError(w, w.admin.StartRebuild, &skeinv1.StartRebuildRequest{}) },
			"projection",
		},
		"rebuild of an unknown partition": {
			func() error {
				req := &skeinv1.StartRebuildRequest{Projection: "graph", Partitions: []uint32{1, 256}}
				return callExpectingError(w, w.admin.StartRebuild, req)
			},
			"partitions[1]",
		},
		"rebuild with a negative share": {
			func() error {
				return callExpectingError(w, w.admin.StartRebuild, &skeinv1.StartRebuildRequest{Projection: "graph", Share: -0.1})
			},
			"share",
		},
		"rebuild with more than one core": {
			func() error {
				return callExpectingError(w, w.admin.StartRebuild, &skeinv1.StartRebuildRequest{Projection: "graph", Share: 1.1})
			},
			"share",
		},
		"snapshot of an unknown projection": {
			func() error {
				return callExpectingError(w, w.admin.TakeSnapshot, &skeinv1.TakeSnapshotRequest{Projections: []string{"graph", "x"}})
			},
			"projections[1]",
		},
		"erasure of a malformed id": {
			func() error {
				return callExpectingError(w, w.admin.EraseUser, &skeinv1.EraseUserRequest{UserId: "a b"})
			},
			"user_id",
		},
		"erasure of several users with a malformed id": {
			func() error {
				return callExpectingError(w, w.admin.EraseUser, &skeinv1.EraseUserRequest{UserIds: []string{"ann", "a b"}})
			},
			"user_ids[1]",
		},
		"erasure of too many users": {
			func() error {
				return callExpectingError(w, w.admin.EraseUser, &skeinv1.EraseUserRequest{UserIds: slices.Repeat([]string{"ann"}, 10_001)})
			},
			"user_ids",
		},
		"erasure with both fields": {
			func() error {
				return callExpectingError(w, w.admin.EraseUser, &skeinv1.EraseUserRequest{UserId: "ann", UserIds: []string{"bob"}})
			},
			"user_id",
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, c.call(), connect.CodeInvalidArgument, "INVALID_FIELD", c.wantField)
		})
	}
	t.Run("rebuild of an unknown projection", func(t *testing.T) {
		err := callExpectingError(w, w.admin.StartRebuild, &skeinv1.StartRebuildRequest{Projection: "seen"})
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "projection")
		const want = `invalid_argument: projection "seen" is no projection of this service: it has graph`
		if err != nil && err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	})

	// Requests that the operator refuses.
	t.Run("snapshot without a place for it", func(t *testing.T) {
		err := callExpectingError(w, w.admin.TakeSnapshot, &skeinv1.TakeSnapshotRequest{})
		wantError(t, err, connect.CodeUnimplemented, "PROJECTION_UNAVAILABLE", "")
	})
	t.Run("rollback during another operation", func(t *testing.T) {
		err := callExpectingError(w, w.admin.Rollback, &skeinv1.RollbackRequest{Projection: "graph"})
		wantError(t, err, connect.CodeFailedPrecondition, "OPERATION_CONFLICT", "")
		if got := detailsOf(t, err).info.GetMetadata()["operation_id"]; got != "7" {
			t.Errorf("got the operation %q in the details, want 7", got)
		}
		if want := "failed_precondition: 7 is in the way"; err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	})
	t.Run("get an unknown operation", func(t *testing.T) {
		err := callExpectingError(w, w.admin.GetOperation, &skeinv1.GetOperationRequest{OperationId: "x"})
		wantError(t, err, connect.CodeNotFound, "UNKNOWN_OPERATION", "")
	})
	t.Run("cancel an unknown operation", func(t *testing.T) {
		err := callExpectingError(w, w.admin.CancelOperation, &skeinv1.CancelOperationRequest{OperationId: "x"})
		wantError(t, err, connect.CodeNotFound, "UNKNOWN_OPERATION", "")
	})

	if len(n.requests) > 0 {
		t.Errorf("the operator started %v, want nothing", n.requests)
	}
}

// callExpectingError calls a method and returns its error.
func callExpectingError[Req, Res any](
	w *world, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) error {
	_, err := method(w.t.Context(), connect.NewRequest(req))
	return err
}

// TestListOperationsPagesFromTheLatest reads a list in pages of two. Operations that start in
// between do not shift the later pages.
func TestListOperationsPagesFromTheLatest(t *testing.T) {
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
		if len(got) == 2 {
			ask(w, w.admin.StartRebuild, &skeinv1.StartRebuildRequest{Projection: "graph"})
		}
		req.PageToken = res.GetNextPageToken()
		if req.GetPageToken() == "" {
			break
		}

		// The token is only valid for the list of rebuilds, not for that of all operations.
		err := callExpectingError(w, w.admin.ListOperations, &skeinv1.ListOperationsRequest{PageToken: req.GetPageToken()})
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
	}
	if diff := cmp.Diff([]string{"008", "006", "004", "002", "000"}, got); diff != "" {
		t.Errorf("rebuilds (-want +got)\n%s", diff)
	}
}

// TestWatchOperationFollowsItToItsEnd checks how a stream ends: after the last state of an
// operation that has ended, and with an error if the service stops before the operation.
func TestWatchOperationFollowsItToItsEnd(t *testing.T) {
	t.Parallel()
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
	cancelled := watch("000")
	running := watch("001")
	if !cancelled.Receive() || !running.Receive() {
		t.Fatalf("got the errors %v and %v, want a first message of each stream", cancelled.Err(), running.Err())
	}

	// Cancel the first operation.
	ask(w, w.admin.CancelOperation, &skeinv1.CancelOperationRequest{OperationId: "000"})
	if !cancelled.Receive() {
		t.Fatalf("got the error %v, want a message about the end of the operation", cancelled.Err())
	}
	if got := cancelled.Msg().GetOperation().GetState(); got != skeinv1.OperationState_OPERATION_STATE_CANCELLED {
		t.Errorf("got the state %v, want cancelled", got)
	}
	if cancelled.Receive() {
		t.Errorf("got %v after the end of the operation, want the end of the stream", cancelled.Msg())
	}
	if err := cancelled.Err(); err != nil {
		t.Errorf("the stream ended with %v, want no error", err)
	}

	unknown := watch("x")
	if unknown.Receive() {
		t.Errorf("got %v of an unknown operation, want an error", unknown.Msg())
	}
	wantError(t, unknown.Err(), connect.CodeNotFound, "UNKNOWN_OPERATION", "")

	// The stream of a running operation does not end as if the operation had ended.
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	for running.Receive() {
	}
	wantError(t, running.Err(), connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", "")
}
