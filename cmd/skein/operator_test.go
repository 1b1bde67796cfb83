package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/operation"
)

// controlledOperation is an operation that reports when it starts, and ends when the test sends its
// result.
type controlledOperation struct {
	started chan operator.OperationRequest
	results chan error
}

// newControlledOperation makes an operation that may run several times.
func newControlledOperation() *controlledOperation {
	return &controlledOperation{started: make(chan operator.OperationRequest, 16), results: make(chan error, 16)}
}

// prepare returns the function that runs the operation. It reports 4 of 10 rows as done.
func (r *controlledOperation) prepare(o *operator.OperationRequest) (operation.Func, error) {
	return func(ctx context.Context, p *replay.Progress) (string, error) {
		p.StartPhase(replay.Comparing, "rows", 10)
		p.Add(4)
		r.started <- *o
		select {
		case err := <-r.results:
			return "7 rows, as told", err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}, nil
}

// offer returns the operations of a service. A rollback is always refused.
func (r *controlledOperation) offer(*service.Service) service.OfferedOperations {
	return service.OfferedOperations{
		operation.Rebuild: {Prepare: r.prepare, Resumes: true},
		operation.Verify:  {Prepare: r.prepare},
		operation.Rollback: {Prepare: func(*operator.OperationRequest) (operation.Func, error) {
			return nil, &operator.Refusal{Cause: operator.ErrNotPossible, Text: "graph has no previous generation"}
		}},
	}
}

// refusalDetails returns the reason of an error, and the id of the operation that the error names.
func refusalDetails(t *testing.T, err error) (reason, id string) {
	t.Helper()
	var refused *connect.Error
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	for _, d := range refused.Details() {
		if v, verr := d.Value(); verr == nil {
			if info, ok := v.(*errdetails.ErrorInfo); ok {
				return info.GetReason(), info.GetMetadata()["operation_id"]
			}
		}
	}
	return "", ""
}

// TestOperationsContinueAfterRestart starts, refuses and watches operations through the API of a
// service, and demands that a running operation continues after a restart.
func TestOperationsContinueAfterRestart(t *testing.T) {
	t.Parallel()
	dir, logger, operation := t.TempDir(), slog.New(slog.DiscardHandler), newControlledOperation()
	withRehearsal := func(o *service.Options) { o.OfferedOperations = operation.offer }
	api, stop := startService(t, dir, logger, withRehearsal)
	admin := api.Admin()

	started, err := admin.StartRebuild(t.Context(), connect.NewRequest(&skeinv1.StartRebuildRequest{
		Projection: "graph", Partitions: []uint32{3, 255}, Share: 0.25,
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_REBUILD, Projection: "graph", Partitions: []uint32{3, 255}, Share: 0.25,
	}
	if diff := cmp.Diff(want, <-operation.started); diff != "" {
		t.Error(diff)
	}

	id := started.Msg.GetOperation().GetOperationId()
	_, err = admin.StartRebuild(t.Context(), connect.NewRequest(&skeinv1.StartRebuildRequest{Projection: "graph"}))
	if reason, other := refusalDetails(t, err); connect.CodeOf(err) != connect.CodeFailedPrecondition ||
		reason != "OPERATION_CONFLICT" || other != id || !strings.Contains(err.Error(), id) {
		t.Errorf("%v: %s %s", err, reason, other)
	}
	_, err = admin.EraseUser(t.Context(), connect.NewRequest(&skeinv1.EraseUserRequest{UserId: "ann"}))
	if connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), "EraseUser needs the archive") {
		t.Error(err)
	}
	_, err = admin.Rollback(t.Context(), connect.NewRequest(&skeinv1.RollbackRequest{Projection: "graph"}))
	if reason, _ := refusalDetails(t, err); reason != "OPERATION_REFUSED" || !strings.Contains(err.Error(), "previous generation") {
		t.Error(err)
	}
	stop()

	// The next process must continue with the same request.
	api, stop = startService(t, dir, logger, withRehearsal)
	defer stop()
	want.Resumed = true
	if diff := cmp.Diff(want, <-operation.started); diff != "" {
		t.Error(diff)
	}

	stream, err := api.Admin().WatchOperation(t.Context(), connect.NewRequest(&skeinv1.WatchOperationRequest{OperationId: id}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	operation.results <- nil

	var last *skeinv1.Operation
	for stream.Receive() {
		last = stream.Msg().GetOperation()
	}
	if err := stream.Err(); err != nil || last.GetState() != skeinv1.OperationState_OPERATION_STATE_SUCCEEDED ||
		last.GetReport() != "7 rows, as told" || last.GetDone() != 4 || last.GetEndTime() == nil || last.GetOperationId() != id {
		t.Errorf("%v, %v", last, err)
	}
}

// runInProcess runs a command line inside the test, and returns its exit code and what it wrote to
// standard output and standard error.
func runInProcess(args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	code = run(args, &command.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

// checkRunMatches checks the exit code of a command, and that a line of its output, or of its
// errors, matches a pattern.
func checkRunMatches(t *testing.T, wantCode int, pattern string, args ...string) {
	t.Helper()
	code, out, errOut := runInProcess(args...)
	if code != wantCode || !regexp.MustCompile("(?m)"+pattern).MatchString(out+errOut) {
		t.Errorf("skein %q: exit code %d, expected %d and %q, got\n%s%s", args, code, wantCode, pattern, out, errOut)
	}
}

// TestReplayCommandsReportOutcome demands that the commands of `skein replay` print reports and
// failures, and return the exit code for them.
func TestReplayCommandsReportOutcome(t *testing.T) {
	t.Parallel()
	operation := newControlledOperation()
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler), func(o *service.Options) { o.OfferedOperations = operation.offer })
	defer stop()
	server := "--server=" + api.URL
	check := func(wantCode int, wantOut, wantErr string, args ...string) (out string) {
		t.Helper()
		return checkRun(t, wantCode, wantOut, wantErr, append(args, server)...)
	}
	operation.results <- nil
	check(0, "7 rows, as told", "rebuild of graph (operation 2", "replay", "rebuild", "graph", "--share=0.5")
	if o := <-operation.started; o.Share != 0.5 || len(o.Partitions) != 0 {
		t.Errorf("%+v", o)
	}

	// A verification that finds differences fails, and prints its report.
	operation.results <- errors.New("2 rows of inbox differ")
	check(1, "7 rows, as told", "failed: 2 rows of inbox differ", "replay", "verify")
	<-operation.started
	operation.results <- errors.New("2 rows of inbox differ")
	check(1, `"state":"OPERATION_STATE_FAILED"`, "", "replay", "verify", "inbox", "--json", "--partition=3", "--partition=4")
	if o := <-operation.started; len(o.Partitions) != 2 {
		t.Errorf("%+v", o)
	}
	check(1, "", "is no projection of this service: it has counters, graph, inbox, notifications, seen", "replay", "verify", "nothing")
	check(1, "", "graph has no previous generation (OPERATION_REFUSED)", "replay", "rollback", "graph")
	check(1, "", "--archive", "replay", "erase", "ann", "--yes")
	check(1, "", "--snapshots", "snapshot")
	check(1, "", "share", "replay", "rebuild", "graph", "--share=2")

	id := strings.TrimSpace(check(0, "", "started", "replay", "rebuild", "seen", "--no-wait"))
	<-operation.started
	check(0, "4 of 10 rows", "", "replay", "operations")
	if out := check(0, id, "", "replay", "operations", "--kind=rebuild", "--limit=1"); strings.Contains(out, "verify") {
		t.Error(out)
	}
	check(0, "", "cancellation requested", "replay", "cancel", id)
	check(1, "", "rebuild of seen (operation "+id+"): cancelled", "replay", "watch", id)
	check(0, "", "cancelled", "replay", "cancel", id)
	check(1, "", "there is no such operation", "replay", "watch", "x")
}

// TestWatchCommandContinuesAtPosition demands that `skein watch` prints events and the position at
// which another call continues.
func TestWatchCommandContinuesAtPosition(t *testing.T) {
	t.Parallel()
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler))
	defer stop()
	mustPublish(t, api, userFollowed("ann", "bob"), userFollowed("cid", "bob"), userFollowed("dan", "bob"))
	server := "--server=" + api.URL

	code, out, errOut := runInProcess("watch", "--after=earliest", "--limit=2", server)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 2 || !strings.Contains(lines[1], "cid") || !strings.HasPrefix(lines[0], "20") {
		t.Errorf("code %d\n%s%s", code, out, errOut)
	}
	_, position, ok := strings.Cut(strings.TrimSpace(errOut), "at position ")
	if !ok {
		t.Fatal(errOut)
	}

	// Continue at this position, which is inside of one envelope.
	code, out, errOut = runInProcess("watch", "--after="+position, "--limit=1", "--json", "--kind=user_followed", server)
	if code != 0 || !strings.Contains(out, `"userId":"dan"`) || !strings.HasPrefix(out, `{"position":"`+position+"\"}\n") {
		t.Errorf("code %d\n%s%s", code, out, errOut)
	}
	if code, _, errOut = runInProcess("watch", "--kind=follow", server); code != 1 || !strings.Contains(errOut, `not "follow"`) {
		t.Errorf("code %d\n%s", code, errOut)
	}
}
