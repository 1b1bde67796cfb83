package service

import (
	"context"
	"testing"

	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/operation"
)

// TestRollbackInterruptedAfterCutOverIsNotRepeated: a process stops after a rollback has cut over,
// and before the end of the operation is recorded. The next process continues the operation. It must
// not go back to the generation that the operator wanted to leave.
func TestRollbackInterruptedAfterCutOverIsNotRepeated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, stop := mustRunService(t, dir)
	if err := s.rebuildAsOperation(t.Context(), s.Store("graph")); err != nil {
		t.Fatal(err)
	}

	// Let the rollback do all of its work, but not end before the process stops.
	cutOver := make(chan struct{})
	offered := s.OfferedOperations()
	rollback := offered[operation.Rollback]
	prepare := rollback.Prepare
	rollback.Prepare = func(r *operator.OperationRequest) (operation.Func, error) {
		run, err := prepare(r)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, p *replay.Progress) (string, error) {
			if report, err := run(ctx, p); err != nil {
				return report, err
			}
			close(cutOver)
			<-ctx.Done()
			return "", ctx.Err()
		}, nil
	}
	offered[operation.Rollback] = rollback
	started, err := newOperator(s.Operations, offered).Start(t.Context(), operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_ROLLBACK, Projection: "graph",
	})
	if err != nil {
		t.Fatal(err)
	}
	<-cutOver
	stop()

	s, _ = mustRunService(t, dir)
	ended, err := s.awaitOperation(t.Context(), started.GetOperationId())
	if err != nil || ended.State != operation.Succeeded {
		t.Errorf("the rollback ended as %q with %q and %v, expected that it succeeded", ended.State, ended.Error, err)
	}
	if st := s.Store("graph").Status(); st.Generation != 1 || st.Previous != 2 {
		t.Errorf("got generation %d, previous %d, expected 1, 2", st.Generation, st.Previous)
	}
}
