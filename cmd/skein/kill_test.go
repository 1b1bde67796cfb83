package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/imports"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
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
		a, b := rng.IntN(users), rng.IntN(users-1)
		if b >= a {
			b++
		}
		fmt.Fprintf(w, "%d,%d,%d\n", a, b, 1_500_000_000+rng.IntN(1_000_000))
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
	acks, permits := make(chan ackedCall, rows), make(chan struct{}, rows)

	type importResult struct {
		report *importer.Report
		err    error
	}

	importEnded := make(chan importResult, 1)
	go func() {
		report, err := importer.Run(ctx, importer.Options{
			Kind: importer.Follows, Path: path,
			PublishOptions: importer.PublishOptions{
				LogID: "log",
				Publish: func(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
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
				},
			},
		})
		importEnded <- importResult{report, err}
	}()

	var ackedCalls []ackedCall
	for permitted := 0; kills > 0; kills-- {
		for range 1 + rng.IntN(5) {
			permits <- struct{}{}
			permitted++
		}

		for len(ackedCalls) < permitted-1 {
			select {
			case a := <-acks:
				ackedCalls = append(ackedCalls, a)
			case result := <-importEnded:
				t.Fatalf("the import has ended: %+v, %v", result.report, result.err)
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

	// Let the import end, and check everything.
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
	var all []ackedCall
	for {
		select {
		case a := <-acks:
			all = append(all, a)
		default:
			return all
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
				t.Fatalf("an acknowledged position is lost: %v", err)
			}
			if err != nil {
				return err
			}
			for i, k := range res.Msg.GetKinds() {
				if k != skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT {
					t.Errorf("%v was acknowledged and is missing", call.events[i])
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
		t.Errorf("compared: %+v", found)
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

	code, text := interruptImport(ctx, t, api, path, 5, os.Interrupt)
	if code != exitInterrupted || !strings.Contains(text, "the same command continues from row ") {
		t.Errorf("after an interrupt: code %d, %s", code, text)
	}

	code, text = interruptImport(ctx, t, api, path, 30, os.Kill)
	if code != -1 || !strings.Contains(text, "going on after row ") {
		t.Errorf("after a kill: code %d, %s", code, text)
	}

	// The third run imports the rest, and compares everything with the file.
	out, err := exec.CommandContext(ctx, "skein", "import", "follows", path, "--server", s.addr, "--json",
		"--compare", "--compare-checks", "1000").Output()
	if err != nil {
		var failed *exec.ExitError
		errors.As(err, &failed)
		t.Fatalf("%v: %s%s", err, out, failed.Stderr)
	}

	var report imports.FileReport
	if err := json.Unmarshal(out, &report); err != nil || report.Rows != rows || report.Events != rows {
		t.Errorf("%s: %v", out, err)
	}
	// The interrupted runs have saved their progress, so at least 4000 rows are not sent again.
	if report.Sent > rows-4000 {
		t.Errorf("%d events were sent again", report.Sent)
	}
}

// interruptImport runs the import until the log has this many envelopes, and sends a signal to it.
// It returns the exit code and what the import wrote to standard error.
func interruptImport(ctx context.Context, t *testing.T, api *command.Client, path string, envelopes uint64, signal os.Signal) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "skein", "import", "follows", path, "--server", api.URL)
	var text bytes.Buffer
	cmd.Stderr = &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	waitUntil(ctx, t, func(ctx context.Context) error {
		status, err := getStatus(ctx, api)
		if err == nil && status.GetLog().GetLastSequence() < envelopes {
			err = fmt.Errorf("%d envelopes", status.GetLog().GetLastSequence())
		}
		return err
	})

	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) {
		t.Fatalf("the import ended before it was interrupted: %v", err)
	}
	return ended.ExitCode(), text.String()
}
