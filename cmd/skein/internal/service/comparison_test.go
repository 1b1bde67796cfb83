package service

import (
	"context"
	"errors"
	"testing"

	"github.com/skein-feed/skein/gateway/operator"
	"github.com/skein-feed/skein/replay/verify"
)

// TestCanceledComparisonFails cancels a verification of all projections after the first one was
// found equal. It must not succeed, because it has not compared the others.
func TestCanceledComparisonFails(t *testing.T) {
	service, _ := mustRunService(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	compared := 0
	verifyAndCancel := func(ctx context.Context, s verify.Store, o verify.Options) (*verify.Report, error) {
		defer cancel()
		compared++
		return verify.Verify(ctx, s, o)
	}

	run, err := service.prepareComparison(&operator.OperationRequest{}, verifyAndCancel)
	if err != nil {
		t.Fatal(err)
	}
	if report, err := run(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v with the report %q, want %v", err, report, context.Canceled)
	}
	if compared != 1 {
		t.Errorf("got %d compared projections, want 1", compared)
	}
}
