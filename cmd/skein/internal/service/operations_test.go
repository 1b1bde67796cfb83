package service

import (
	"context"
	"testing"
	"time"

	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/operation"
)

// TestRollbackInterruptedAfterCutOverIsNotRepeated: a process stops after a rollback has cut over,
// and before the end of the operation is recorded. The next process continues the operation. It
// must not go back to the generation that the operator wanted to leave.
func TestRollbackInterruptedAfterCutOverIsNotRepeated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, stop := mustRunService(t, dir)
	if err := s.rebuildAsOperation(t.Context(), s.Store("graph")); err != nil {
		t.Fatal(err)
	}

	// Let the rollback do all of its work, but not end before the process stops.
	cutOver := make(chan struct{})
	failed := make(chan error, 1)
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
				failed <- err
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
	select {
	case <-cutOver:
	case err := <-failed:
		t.Fatalf("rollback: got error %v, want a cut-over", err)
	}
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

// TestRebuildAndRollbackLockBuilds: while a rebuild or a rollback is under way, nothing may build
// generations of all stores, such as a change of partitions. Another projection may be rebuilt. A
// view of the generation that is being replaced keeps each operation from ending.
func TestRebuildAndRollbackLockBuilds(t *testing.T) {
	t.Parallel()
	s, _ := mustRunService(t, t.TempDir())
	operations := newOperator(s.Operations, s.OfferedOperations())
	for _, kind := range []skeinv1.OperationKind{
		skeinv1.OperationKind_OPERATION_KIND_REBUILD, skeinv1.OperationKind_OPERATION_KIND_ROLLBACK,
	} {
		view, err := s.Store("graph").View()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.rebuildAsOperation(t.Context(), s.Store("graph")); err != nil {
			t.Fatal(err)
		}
		started, err := operations.Start(t.Context(), operator.OperationRequest{Kind: kind, Projection: "graph"})
		if err != nil {
			t.Fatal(err)
		}

		limit, cancel := context.WithTimeout(t.Context(), lockLimit)
		defer cancel()
		for !isBuildLocked(t, s) {
			if wait.For(limit, 10*time.Millisecond) != nil {
				t.Fatalf("%v: nobody holds the lock, expected that the operation does", kind)
			}
		}
		if err := s.rebuildAsOperation(limit, s.Store("inbox")); err != nil {
			t.Fatalf("%v: got error %v from a rebuild of another projection, want none", kind, err)
		}
		if err := view.Close(); err != nil {
			t.Fatal(err)
		}
		ended, err := s.awaitOperation(t.Context(), started.GetOperationId())
		if err != nil || ended.State != operation.Succeeded {
			t.Errorf("%v ended as %q with %q and %v, expected that it succeeded", kind, ended.State, ended.Error, err)
		}
		if isBuildLocked(t, s) {
			t.Fatalf("%v: somebody holds the lock after the operation, expected that it is free", kind)
		}
	}
}

// lockLimit bounds how long a test waits until an operation has taken a lock.
const lockLimit = time.Minute

// isBuildLocked reports whether somebody holds the lock of the builds for some time.
func isBuildLocked(t *testing.T, s *Service) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	release, err := s.erasure.LockBuilds(ctx)
	if err != nil {
		return true
	}
	release()
	return false
}
