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

// writeFollows writes a file of follows between so many users: distinct pairs, some repeated with
// other times.
func writeFollows(t *testing.T, path string, rng *rand.Rand, users, rows int) {
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

// acked is a call that the service acknowledged.
type acked struct {
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
	writeFollows(t, path, rng, 2000, rows)

	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := &server{t: t, dir: dir}
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { s.kill() }()
	api := (&command.ClientFlags{Server: s.addr}).Client()

	// Each call needs a permit, or the import would be over before the second kill.
	acks, permits := make(chan acked, rows), make(chan struct{}, rows)
	type outcome struct {
		report *importer.Report
		err    error
	}
	ended := make(chan outcome, 1)
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
						permits <- struct{}{} // for the next try
						return nil, err
					}
					acks <- acked{res.Msg.GetPosition(), req.GetEvents()}
					return res.Msg, nil
				},
			},
		})
		ended <- outcome{report, err}
	}()

	var seen []acked
	for permitted := 0; kills > 0; kills-- {
		for range 1 + rng.IntN(5) {
			permits <- struct{}{}
			permitted++
		}
		for len(seen) < permitted-1 {
			select {
			case a := <-acks:
				seen = append(seen, a)
			case o := <-ended:
				t.Fatalf("the import has ended: %+v, %v", o.report, o.err)
			}
		}
		// At any moment of the last call, or after it.
		<-time.After(time.Duration(rng.IntN(10_000)) * time.Microsecond)
		s.kill()
		if err := s.start(ctx); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, drain(acks)...)
		demandAcked(ctx, t, api, seen[max(0, len(seen)-5):])
	}
	for range rows / 1000 {
		permits <- struct{}{}
	}
	o := <-ended
	if o.err != nil {
		t.Fatal(o.err)
	}
	seen = append(seen, drain(acks)...)
	demandAcked(ctx, t, api, seen)
	t.Logf("%d calls acknowledged", len(seen))
	compareAll(ctx, t, api, path, o.report)
}

func drain(acks <-chan acked) []acked {
	var all []acked
	for {
		select {
		case a := <-acks:
			all = append(all, a)
		default:
			return all
		}
	}
}

// demandAcked demands that the log and the graph have what was acknowledged. A position that the
// log has lost is refused as being beyond its end.
func demandAcked(ctx context.Context, t *testing.T, api *command.Client, calls []acked) {
	t.Helper()
	for _, call := range calls {
		req := &skeinv1.CheckFollowsRequest{AtLeast: call.position}
		for _, ev := range call.events {
			f := ev.GetUserFollowed()
			req.Pairs = append(req.Pairs, &skeinv1.FollowPair{
				UserId: f.GetUserId(), Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: f.GetTargetUserId()},
			})
		}
		err := eventually(ctx, func(ctx context.Context) error {
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
		if err != nil {
			t.Fatal(err)
		}
	}
}

// compareAll compares every answer with the file.
func compareAll(ctx context.Context, t *testing.T, api *command.Client, path string, report *importer.Report) {
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
	writeFollows(t, path, rand.New(rand.NewPCG(1, 2)), 300, rows)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := &server{t: t, dir: dir}
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	defer s.kill()
	api := (&command.ClientFlags{Server: s.addr}).Client()

	code, text := breakOff(ctx, t, api, path, 5, os.Interrupt)
	if code != exitInterrupted || !strings.Contains(text, "the same command continues from row ") {
		t.Errorf("after an interrupt: code %d, %s", code, text)
	}
	code, text = breakOff(ctx, t, api, path, 30, os.Kill)
	if code != -1 || !strings.Contains(text, "going on after row ") {
		t.Errorf("after a kill: code %d, %s", code, text)
	}
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
	// The state had been saved by the interrupted run, so most rows were not sent again.
	if report.Sent > rows-4000 {
		t.Errorf("%d events were sent again", report.Sent)
	}
}

// breakOff runs the import until the log has so many envelopes, and breaks it off.
func breakOff(ctx context.Context, t *testing.T, api *command.Client, path string, envelopes uint64, signal os.Signal) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "skein", "import", "follows", path, "--server", api.URL)
	var text bytes.Buffer
	cmd.Stderr = &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err := eventually(ctx, func(ctx context.Context) error {
		res, err := api.Admin().GetStatus(ctx, connect.NewRequest(&skeinv1.GetStatusRequest{}))
		if err == nil && res.Msg.GetLog().GetLastSequence() < envelopes {
			err = fmt.Errorf("%d envelopes", res.Msg.GetLog().GetLastSequence())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) {
		t.Fatalf("the import ended before it was interrupted: %v", err)
	}
	return ended.ExitCode(), text.String()
}
