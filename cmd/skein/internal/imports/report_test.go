package imports

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// listing answers reports with a state or an error, and notes them.
type listing struct {
	connectv1.UnimplementedAdminServiceHandler
	state skeinv1.OperationState
	err   error
	got   []*skeinv1.ReportImportRequest
}

// ReportImport is part of AdminServiceHandler.
func (l *listing) ReportImport(
	_ context.Context, req *connect.Request[skeinv1.ReportImportRequest],
) (*connect.Response[skeinv1.ReportImportResponse], error) {
	l.got = append(l.got, req.Msg)
	return connect.NewResponse(&skeinv1.ReportImportResponse{Operation: &skeinv1.Operation{State: l.state}}), l.err
}

func (l *listing) client(t *testing.T) *command.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(connectv1.NewAdminServiceHandler(l))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	flags := command.ClientFlags{Server: server.URL, Timeout: time.Minute}
	return flags.Client()
}

func TestReportsAnImport(t *testing.T) {
	l := &listing{state: skeinv1.OperationState_OPERATION_STATE_RUNNING}
	failed := errors.New("no more")
	err := reported(t.Context(), l.client(t), func(ctx context.Context, r *reporter) (string, error) {
		r.progress(ctx, "", "bytes", 0, 0) // its source is not known yet
		for done := range uint64(3) {
			r.progress(ctx, "a.csv", "bytes", done, 9) // of what comes at once the first is reported
		}
		return "2 rows", failed
	})
	if !errors.Is(err, failed) || len(l.got) != 2 {
		t.Fatal(err, l.got)
	}
	if first := l.got[0]; first.GetSource() != "a.csv" || first.GetDone() != 0 || first.GetTotal() != 9 || first.GetEnded() {
		t.Error(first)
	}
	if last := l.got[1]; last.GetDone() != 2 || !last.GetEnded() || last.GetError() != "no more" || last.GetReport() != "2 rows" {
		t.Error(last)
	}
}

// TestReportedCancelled: who cancels an import where it is listed ends it.
func TestReportedCancelled(t *testing.T) {
	l := &listing{state: skeinv1.OperationState_OPERATION_STATE_CANCELLED}
	err := reported(t.Context(), l.client(t), func(ctx context.Context, r *reporter) (string, error) {
		r.progress(ctx, "a.csv", "bytes", 1, 9)
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	if !errors.Is(err, errCancelled) {
		t.Error(err)
	}
}

// TestReportedNowhere: an import succeeds at a service that does not list imports, and stops reporting.
func TestReportedNowhere(t *testing.T) {
	l := &listing{err: connect.NewError(connect.CodePermissionDenied, errors.New("not yours"))}
	err := reported(t.Context(), l.client(t), func(ctx context.Context, r *reporter) (string, error) {
		r.progress(ctx, "a.csv", "bytes", 1, 9)
		return "", ctx.Err()
	})
	if err != nil || len(l.got) != 1 {
		t.Error(err, l.got)
	}
}
