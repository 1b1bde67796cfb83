package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/imports"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
	"github.com/skein-feed/skein/replay/importer"
)

// writeFollowsFile writes a file of follows between users with the numbers from 0. Some pairs are
// repeated with other times.
func writeFollowsFile(t *testing.T, path string, rng *rand.Rand, users, rows int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "follower,user,time")
	for range rows {
		// Nobody follows themselves, so leave out the number of the follower.
		follower := rng.IntN(users)
		followee := rng.IntN(users - 1)
		if followee >= follower {
			followee++
		}
		fmt.Fprintf(w, "%d,%d,%d\n", follower, followee, 1_500_000_000+rng.IntN(1_000_000))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// ackedCall is a call of Publish that the service acknowledged.
type ackedCall struct {
	position string
	events   []*skeinv1.Event
}

// TestServerKilledDuringImportLosesNothing kills the service again and again during an import, at
// any moment, and starts it again on what is left on disk. The importer must continue by itself. No
// acknowledged event may be missing after any start, and in the end every answer must equal the
// file.
func TestServerKilledDuringImportLosesNothing(t *testing.T) {
	t.Parallel()
	kills, rows := 20, 130_000
	if testing.Short() {
		kills, rows = 3, 30_000
	}

	seed := testSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	path := filepath.Join(dir, "follows.csv")
	writeFollowsFile(t, path, rng, 2000, rows)

	ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	defer cancel()
	s := &serverProcess{t: t, dir: dir}
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { s.kill() }()
	api := s.newClient()

	// Each call of the import needs a permit. Otherwise the import would be over before the second
	// kill.
	permits := make(chan struct{}, rows)
	acks := make(chan ackedCall, rows)
	publish := func(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
		select {
		case <-permits:
		case <-ctx.Done():
			return nil, ctx.Err()
		}

		res, err := api.Events().Publish(ctx, connect.NewRequest(req))
		if err != nil {
			permits <- struct{}{} // the importer tries again
			return nil, err
		}
		acks <- ackedCall{res.Msg.GetPosition(), req.GetEvents()}
		return res.Msg, nil
	}

	type importResult struct {
		report *importer.Report
		err    error
	}
	importEnded := make(chan importResult, 1)
	go func() {
		report, err := importer.Run(ctx, importer.Options{
			Kind: importer.Follows, Path: path, PublishOptions: importer.PublishOptions{LogID: "log", Publish: publish},
		})
		importEnded <- importResult{report, err}
	}()

	var ackedCalls []ackedCall
	permitted := 0
	for range kills {
		for range 1 + rng.IntN(5) {
			permits <- struct{}{}
			permitted++
		}

		// Wait until all calls but the last one are acknowledged.
		for len(ackedCalls) < permitted-1 {
			select {
			case call := <-acks:
				ackedCalls = append(ackedCalls, call)
			case result := <-importEnded:
				t.Fatalf("import: got the end with %+v, %v, want that it continues until all kills are done", result.report, result.err)
			}
		}

		// Kill the service up to 10 ms later, which is at any moment of the last call, or after it.
		<-time.After(time.Duration(rng.IntN(10_000)) * time.Microsecond)
		s.kill()
		if err := s.start(ctx); err != nil {
			t.Fatal(err)
		}

		// Only the latest calls can be missing, so only these are checked after every kill.
		ackedCalls = append(ackedCalls, receiveAll(acks)...)
		checkAcked(ctx, t, api, ackedCalls[max(0, len(ackedCalls)-5):])
	}

	// Let the import end, and check everything. A call has 1000 rows.
	for range rows / 1000 {
		permits <- struct{}{}
	}
	result := <-importEnded
	if result.err != nil {
		t.Fatal(result.err)
	}

	ackedCalls = append(ackedCalls, receiveAll(acks)...)
	checkAcked(ctx, t, api, ackedCalls)
	t.Logf("%d calls acknowledged", len(ackedCalls))
	compareWithFile(ctx, t, api, path, result.report)
}

// receiveAll returns the calls that are in the channel, without waiting for more.
func receiveAll(acks <-chan ackedCall) []ackedCall {
	var calls []ackedCall
	for {
		select {
		case call := <-acks:
			calls = append(calls, call)
		default:
			return calls
		}
	}
}

// checkAcked checks that the graph has all follows that were acknowledged. The service refuses a
// position that the log has lost, because the position is beyond the end of the log.
func checkAcked(ctx context.Context, t *testing.T, api *command.Client, calls []ackedCall) {
	t.Helper()
	for _, call := range calls {
		req := &skeinv1.CheckFollowsRequest{AtLeast: call.position}
		for _, ev := range call.events {
			f := ev.GetUserFollowed()
			req.Pairs = append(req.Pairs, userPair(f.GetUserId(), f.GetTargetUserId()))
		}

		waitUntil(ctx, t, func(ctx context.Context) error {
			res, err := api.Graph().CheckFollows(ctx, connect.NewRequest(req))
			if connect.CodeOf(err) == connect.CodeInvalidArgument {
				t.Fatalf("CheckFollows at the acknowledged position %s: got %v, want that the log has the position", call.position, err)
			}
			if err != nil {
				return err
			}

			for i, kind := range res.Msg.GetKinds() {
				if want := skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT; kind != want {
					t.Errorf("acknowledged follow %v: got %v, want %v", call.events[i], kind, want)
				}
			}
			return nil
		})
	}
}

// compareWithFile compares the answers of the service with the file.
func compareWithFile(ctx context.Context, t *testing.T, api *command.Client, path string, report *importer.Report) {
	t.Helper()
	found, err := importer.Compare(ctx, importer.CompareOptions{
		Kind: importer.Follows, Path: path, StartedAt: report.StartedAt, AtLeast: report.Position, Graph: api.Graph(),
		Pairs: 10_000, Difference: func(text string) { t.Error(text) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if found.Differences() > 0 || found.Lists == 0 || found.Entries == 0 {
		t.Errorf("Compare: got %+v, want lists with entries and no differences", found)
	}
}

// TestInterruptedImportContinues interrupts an import, then kills it, and demands that the same
// command continues where the import stopped.
func TestInterruptedImportContinues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "follows.csv")
	const rows = 120_000
	writeFollowsFile(t, path, rand.New(rand.NewPCG(1, 2)), 300, rows)

	ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	defer cancel()
	s := &serverProcess{t: t, dir: dir}
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	defer s.kill()
	api := s.newClient()

	code, errOut := interruptImport(ctx, t, api, path, 5, os.Interrupt)
	if want := "the same command continues from row "; code != exitInterrupted || !strings.Contains(errOut, want) {
		t.Errorf("import that is interrupted: got exit code %d and %s, want %d and %q", code, errOut, exitInterrupted, want)
	}

	// A process that is killed has no exit code. The second run says that it continues.
	code, errOut = interruptImport(ctx, t, api, path, 25, os.Kill)
	if want := "going on after row "; code != -1 || !strings.Contains(errOut, want) {
		t.Errorf("import that is killed: got exit code %d and %s, want -1 and %q", code, errOut, want)
	}

	// The third run imports the rest, and compares everything with the file.
	out, err := exec.CommandContext(ctx, "skein", "import", "follows", path, "--server", s.addr, "--json",
		"--compare", "--compare-checks", "1000").Output()
	if err != nil {
		var stderr []byte
		if exitErr, ok := errors.AsType[*exec.ExitError](err); ok {
			stderr = exitErr.Stderr
		}
		t.Fatalf("import of the rest: got %v, want no error: %s%s", err, out, stderr)
	}

	var report imports.FileReport
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("report of the import: got %v, want JSON: %s", err, out)
	}
	if report.Rows != rows || report.Events != rows {
		t.Errorf("report of the import: got %d rows and %d events, want %d of both", report.Rows, report.Events, rows)
	}
	// The first run has saved its progress, so at least 4000 rows are not sent again.
	if report.Sent > rows-4000 {
		t.Errorf("report of the import: got %d events sent by the third run, want at most %d", report.Sent, rows-4000)
	}
}

// interruptImport runs the import until the service has answered this many calls of Publish, and
// sends a signal to it while the next call is under way. It returns the exit code and what the
// import wrote to standard error.
func interruptImport(
	ctx context.Context, t *testing.T, api *command.Client, path string, calls int64, signal os.Signal,
) (code int, errOut string) {
	t.Helper()

	// The proxy holds back all later calls. Otherwise the import could end before the signal.
	service, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(service)
	var published atomic.Int64
	isHeld := make(chan struct{}, 1)
	release := make(chan struct{})
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == skeinv1connect.EventServicePublishProcedure && published.Add(1) > calls {
			select {
			case isHeld <- struct{}{}:
			default: // the import has given up a call that was held, and makes it again
			}
			<-release
			return
		}
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	defer close(release) // before proxy.Close, which waits for the calls

	cmd := exec.CommandContext(ctx, "skein", "import", "follows", path, "--server", proxy.URL)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	select {
	case <-isHeld:
	case err := <-ended:
		t.Fatalf("import: got the end with %v before call %d, want that the signal %v ends it: %s", err, calls+1, signal, &stderr)
	}
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	err = <-ended
	exitErr, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatalf("import: got the end with %v, want that the signal %v ends it", err, signal)
	}
	return exitErr.ExitCode(), stderr.String()
}
