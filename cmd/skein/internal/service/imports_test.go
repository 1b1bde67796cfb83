package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/operation"
)

func newReported(t *testing.T) *orders {
	t.Helper()
	ops, err := operation.Open(operation.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- ops.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return newOrders(ops, Jobs{})
}

func report(t *testing.T, o *orders, r *skeinv1.ReportImportRequest) *skeinv1.Operation {
	t.Helper()
	op, err := o.ReportImport(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// ended waits for the end of an operation.
func ended(t *testing.T, o *orders, id string) (last *skeinv1.Operation) {
	t.Helper()
	if err := o.Watch(t.Context(), id, func(op *skeinv1.Operation) error { last = op; return nil }); err != nil {
		t.Fatal(err)
	}
	return last
}

func TestReportedImports(t *testing.T) {
	o := newReported(t)
	first := report(t, o, &skeinv1.ReportImportRequest{Source: "a.csv", Unit: "bytes", Done: 10, Total: 100})
	other := report(t, o, &skeinv1.ReportImportRequest{Source: "b.csv", Unit: "bytes", Done: 1})
	if first.GetProjection() != "a.csv" || first.GetOperationId() == other.GetOperationId() {
		t.Error(first, other)
	}
	again := report(t, o, &skeinv1.ReportImportRequest{Source: "a.csv", Unit: "bytes", Done: 20, Total: 100})
	if again.GetOperationId() != first.GetOperationId() {
		t.Errorf("%v is another operation than %v", again, first)
	}
	report(t, o, &skeinv1.ReportImportRequest{Source: "a.csv", Unit: "bytes", Done: 100, Total: 100, Ended: true, Report: "7 rows"})
	if op := ended(t, o, first.GetOperationId()); op.GetState() != skeinv1.OperationState_OPERATION_STATE_SUCCEEDED ||
		op.GetReport() != "7 rows" || op.GetDone() != 100 || op.GetUnit() != "bytes" {
		t.Error(op)
	}
	// The next one is another operation; it fails.
	next := report(t, o, &skeinv1.ReportImportRequest{Source: "a.csv", Unit: "bytes", Ended: true, Error: "no space"})
	if op := ended(t, o, next.GetOperationId()); op.GetOperationId() == first.GetOperationId() ||
		op.GetState() != skeinv1.OperationState_OPERATION_STATE_FAILED || op.GetError() != "no space" {
		t.Error(op)
	}
}

// TestReportedImportIsCancelled: the import learns of it by the answer to its next report.
func TestReportedImportIsCancelled(t *testing.T) {
	o := newReported(t)
	op := report(t, o, &skeinv1.ReportImportRequest{Source: "a.csv", Unit: "bytes", Done: 10})
	if _, err := o.Cancel(t.Context(), op.GetOperationId()); err != nil {
		t.Fatal(err)
	}
	ended(t, o, op.GetOperationId())
	if op := report(t, o, &skeinv1.ReportImportRequest{Source: "a.csv", Unit: "bytes", Done: 20}); op.GetState() !=
		skeinv1.OperationState_OPERATION_STATE_CANCELLED {
		t.Error(op)
	}
}

func TestSilentImport(t *testing.T) {
	i := newReportedImport()
	i.silence = 1
	if _, err := i.run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "the same command continues it") {
		t.Error(err)
	}
}

func TestTooManyReportedImports(t *testing.T) {
	o := newReported(t)
	var first *skeinv1.Operation
	for n := range mostImports {
		op := report(t, o, &skeinv1.ReportImportRequest{Source: fmt.Sprint(n), Unit: "bytes"})
		if n == 0 {
			first = op
		}
	}
	more := &skeinv1.ReportImportRequest{Source: "more", Unit: "bytes"}
	if _, err := o.ReportImport(t.Context(), more); !errors.Is(err, operator.ErrNotPossible) {
		t.Error(err)
	}
	if _, err := o.Cancel(t.Context(), first.GetOperationId()); err != nil {
		t.Fatal(err)
	}
	ended(t, o, first.GetOperationId())
	report(t, o, more)
}
