package operation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/replay"
)

func mustOpen(t *testing.T, dir string) *Manager {
	t.Helper()
	m, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// runManager runs a manager. The returned function stops it as a process does that ends in order.
func runManager(t *testing.T, m *Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func mustStart(t *testing.T, m *Manager, k Kind, projection string, run Func) Info {
	t.Helper()
	i, err := m.Start(k, projection, nil, run)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// waitUntilEnded waits until an operation has ended, and returns it.
func waitUntilEnded(t *testing.T, m *Manager, id string) (last Info) {
	t.Helper()
	err := m.Watch(t.Context(), id, func(i Info) error { last = i; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// blockingFunc returns an operation that runs until a value is sent to let, or until its context
// ends. It closes began when it runs.
func blockingFunc(report string) (blocking Func, began chan struct{}, let chan error) {
	began, let = make(chan struct{}), make(chan error, 1)
	return func(ctx context.Context, p *replay.Progress) (string, error) {
		p.StartPhase(replay.Comparing, "rows", 10)
		p.Add(3)
		close(began)
		select {
		case err := <-let:
			return report, err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}, began, let
}

// An operation ends with the report and the error of its function, also if the function panics. A
// long report is cut.
func TestOutcomeOfAnOperationIsKept(t *testing.T) {
	m := mustOpen(t, t.TempDir())
	runManager(t, m)

	for _, c := range []struct {
		name, report, wantError string
		err                     error
		want                    State
	}{
		{"succeeded", "compared 7 rows", "", nil, Succeeded},
		{"failed with a report", "2 of 7 rows differ", "graph differs", errors.New("graph differs"), Failed},
		{"context canceled by nobody", "", "context canceled", context.Canceled, Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			blocking, began, let := blockingFunc(c.report)
			id := mustStart(t, m, Verify, "graph", blocking).ID
			<-began
			running, err := m.Get(id)
			if err != nil || running.State != Running || running.Done != 3 || running.Total != 10 || running.Unit != "rows" {
				t.Errorf("while it runs: got %+v, %v, expected 3 of 10 rows", running, err)
			}

			let <- c.err
			got := waitUntilEnded(t, m, id)
			if got.State != c.want || got.Report != c.report || got.Error != c.wantError || got.Ended.IsZero() || got.Done != 3 {
				t.Errorf("got %+v, expected state %s, report %q and error %q", got, c.want, c.report, c.wantError)
			}
		})
	}

	t.Run("panic", func(t *testing.T) {
		panics := func(context.Context, *replay.Progress) (string, error) { panic("a bug") }
		got := waitUntilEnded(t, m, mustStart(t, m, Verify, "graph", panics).ID)
		if got.State != Failed || !strings.Contains(got.Error, "a bug") {
			t.Errorf("got %+v, expected a failure that names the bug", got)
		}
	})

	t.Run("long report", func(t *testing.T) {
		long := strings.Repeat("é", maxTextBytes)
		reports := func(context.Context, *replay.Progress) (string, error) { return long, nil }
		got := waitUntilEnded(t, m, mustStart(t, m, Verify, "", reports).ID)
		if len(got.Report) > maxTextBytes || !strings.HasSuffix(got.Report, "é\n… (cut)") {
			t.Errorf("got %d bytes that end in %q, expected at most %d and the mark of a cut",
				len(got.Report), got.Report[len(got.Report)-20:], maxTextBytes)
		}
	})
}

// An operation that is cancelled before it begins never begins. One that runs is asked to stop, and
// ends as cancelled unless it could not stop any more.
func TestCancelledOperationEnds(t *testing.T) {
	m := mustOpen(t, t.TempDir())

	// Cancel it before it begins.
	early := mustStart(t, m, Rebuild, "graph", func(context.Context, *replay.Progress) (string, error) {
		t.Error("a cancelled operation began")
		return "", nil
	})
	if got, err := m.Cancel(early.ID); err != nil || got.State != Cancelled {
		t.Errorf("before it begins: got %+v, %v, expected state cancelled", got, err)
	}

	runManager(t, m)

	// Cancel it while it runs.
	blocking, began, _ := blockingFunc("")
	id := mustStart(t, m, Rebuild, "graph", blocking).ID
	<-began
	if _, err := m.Cancel(id); err != nil {
		t.Fatal(err)
	}
	if got := waitUntilEnded(t, m, id); got.State != Cancelled || got.Error != "" {
		t.Errorf("while it ran: got %+v, expected state cancelled without an error", got)
	}

	// Cancel it again, and cancel an unknown one.
	if got, err := m.Cancel(id); err != nil || got.State != Cancelled {
		t.Errorf("again: got %+v, %v, expected state cancelled", got, err)
	}
	if _, err := m.Cancel("x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown id: got %v, expected %v", err, ErrNotFound)
	}

	// A function that cannot stop any more may still succeed.
	late := mustStart(t, m, Rebuild, "graph", func(ctx context.Context, _ *replay.Progress) (string, error) {
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrCancelled) {
			t.Errorf("the cause is %v, expected %v", context.Cause(ctx), ErrCancelled)
		}
		return "it was done already", nil
	})
	if _, err := m.Cancel(late.ID); err != nil {
		t.Fatal(err)
	}
	if got := waitUntilEnded(t, m, late.ID); got.State != Succeeded && got.State != Cancelled {
		t.Errorf("too late: got %+v, expected state succeeded or cancelled", got)
	}
}

func TestConflictingOperationIsRejected(t *testing.T) {
	for _, c := range []struct {
		first    Kind
		of       string
		second   Kind
		other    string
		conflict bool
	}{
		{Rebuild, "graph", Rebuild, "graph", true},
		{Rebuild, "graph", Rebuild, "inbox", false},
		{Rebuild, "graph", Verify, "graph", true},
		{Verify, "", Repair, "seen", true},
		{Repair, "seen", Verify, "", true},
		{Verify, "", Snapshot, "", false},
		{Rebuild, "graph", Snapshot, "graph", false},
		{Snapshot, "", Snapshot, "graph", true},
		{Rollback, "graph", Rebuild, "graph", true},
		{Snapshot, "", Erase, "", true},
		{Erase, "", Rebuild, "graph", true},
	} {
		name := fmt.Sprintf("%s of %q, then %s of %q", c.first, c.of, c.second, c.other)
		t.Run(name, func(t *testing.T) {
			m := mustOpen(t, t.TempDir())
			first := mustStart(t, m, c.first, c.of, nil)

			_, err := m.Start(c.second, c.other, nil, nil)
			var conflict *ConflictError
			switch {
			case !c.conflict && err != nil:
				t.Errorf("got %v, expected no conflict", err)
			case c.conflict && (!errors.As(err, &conflict) || conflict.With.ID != first.ID || !strings.Contains(err.Error(), first.ID)):
				t.Errorf("got %v, expected a conflict with operation %s", err, first.ID)
			}

			// An operation that has ended conflicts with no other.
			if _, err := m.Cancel(first.ID); err != nil {
				t.Fatal(err)
			}
			if c.conflict {
				mustStart(t, m, c.second, c.other, nil)
			}
		})
	}
}

// The rate is the rate of the last half minute, and the remaining time follows from it. A watcher
// gets at most one update per second.
func TestRateAndRemainingTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := mustOpen(t, dir)
		runManager(t, m)
		id := mustStart(t, m, Rebuild, "graph", func(_ context.Context, p *replay.Progress) (string, error) {
			p.StartPhase(replay.Reading, "envelopes", 100_000)
			letTimePass(500 * time.Millisecond) // so that the progress does not change when it is sampled
			for range 60 {
				p.Add(1000)
				letTimePass(time.Second)
			}
			for range 60 {
				p.Add(100)
				letTimePass(time.Second)
			}
			p.StartPhase(replay.Comparing, "rows", 10) // the rate of another phase is measured from its start
			letTimePass(2 * time.Second)
			return "", nil
		}).ID

		letTimePass(30*time.Second + 250*time.Millisecond)
		if i, _ := m.Get(id); i.Rate != 1000 || i.Done != 30_000 || i.Remaining != 70*time.Second {
			t.Errorf("after 30 s: got %+v, expected 30000 done, a rate of 1000 and 70 s left", i)
		}
		letTimePass(70 * time.Second)
		if i, _ := m.Get(id); i.Rate != 100 || i.Done != 64_000 || i.Remaining != 360*time.Second {
			t.Errorf("after 100 s: got %+v, expected 64000 done, a rate of 100 and 360 s left", i)
		}

		updates := 0
		units := map[string]bool{}
		err := m.Watch(t.Context(), id, func(i Info) error {
			updates++
			units[i.Unit] = true
			if i.Unit == "rows" && !i.State.Ended() && (i.Rate != 0 || i.Remaining >= 0) {
				t.Errorf("in the second phase: got %+v, expected no rate and no remaining time yet", i)
			}
			return nil
		})
		if err != nil || updates < 15 || updates > 30 || !units["rows"] {
			t.Errorf("got %d updates with the units %v, %v, expected about one per second", updates, units, err)
		}
	})
}

// After a restart, an operation whose kind can be resumed continues, one that an operator has
// cancelled stays cancelled, and others fail.
func TestRestartContinuesOrFailsOperations(t *testing.T) {
	dir, killed := t.TempDir(), t.TempDir()
	m := mustOpen(t, dir)
	stop := runManager(t, m)
	rebuild, rebuilding, _ := blockingFunc("")
	verify, verifying, _ := blockingFunc("")
	repair, repairing, _ := blockingFunc("")

	if _, err := m.Start(Rebuild, "graph", map[string]any{"partitions": []int{1, 2}}, rebuild); err != nil {
		t.Fatal(err)
	}
	mustStart(t, m, Verify, "inbox", verify)
	slow := make(chan struct{})
	cancelled := mustStart(t, m, Repair, "seen", func(ctx context.Context, p *replay.Progress) (string, error) {
		_, err := repair(ctx, p)
		<-slow // the function does not stop at once
		return "", err
	})
	<-rebuilding
	<-verifying
	<-repairing
	if _, err := m.Cancel(cancelled.ID); err != nil {
		t.Fatal(err)
	}

	// Keep what a process leaves behind that is killed now. Then stop this one in order.
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	close(slow)
	stop()

	for _, k := range []Kind{Rebuild, Verify} {
		if i := mustList(t, m, k)[0]; i.State != Running {
			t.Errorf("%s: got %+v, expected state running", k, i)
		}
	}
	if _, err := m.Start(Verify, "seen", nil, verify); !errors.Is(err, ErrClosed) {
		t.Errorf("start after the end: got %v, expected %v", err, ErrClosed)
	}

	for name, dir := range map[string]string{"stopped": dir, "killed": killed} {
		t.Run(name, func(t *testing.T) { checkAfterRestart(t, dir) })
	}
}

// checkAfterRestart checks what a new process does with the operations in a directory.
func checkAfterRestart(t *testing.T, dir string) {
	m := mustOpen(t, dir)
	var resumed Info
	m.OnRestart(Rebuild, func(i Info) (Func, error) {
		resumed = i
		return func(_ context.Context, p *replay.Progress) (string, error) {
			p.StartPhase(replay.Comparing, "rows", 4)
			return "went on", nil
		}, nil
	})
	rebuilt := mustList(t, m, Rebuild)[0]

	// An operation that is to be continued conflicts with others already.
	if _, err := m.Start(Rollback, "graph", nil, nil); err == nil {
		t.Error("a rollback was accepted, expected a conflict with the rebuild")
	}

	runManager(t, m)
	got := waitUntilEnded(t, m, rebuilt.ID)
	if got.State != Succeeded || got.Report != "went on" || string(resumed.Args) != `{"partitions":[1,2]}` || len(got.Args) > 0 {
		t.Errorf("rebuild: got %+v, resumed from %+v, expected that it went on with its arguments", got, resumed)
	}
	if got := mustList(t, m, Verify)[0]; got.State != Failed || got.Error != "interrupted by a restart" {
		t.Errorf("verify: got %+v, expected a failure because of the restart", got)
	}
	if got := mustList(t, m, Repair)[0]; got.State != Cancelled {
		t.Errorf("repair: got %+v, expected state cancelled", got)
	}

	// A third process finds the same, and its ids are greater.
	third := mustOpen(t, dir)
	if diff := cmp.Diff(mustList(t, m, ""), mustList(t, third, "")); diff != "" {
		t.Errorf("the third process finds other operations (-want +got)\n%s", diff)
	}
	if i := mustStart(t, third, Rebuild, "graph", nil); i.ID <= mustList(t, m, "")[0].ID {
		t.Errorf("got id %s, expected one above %s", i.ID, mustList(t, m, "")[0].ID)
	}
}

// mustList returns all operations of a kind, newest first.
func mustList(t *testing.T, m *Manager, k Kind) []Info {
	t.Helper()
	found, more := m.List(k, "", 100)
	if more || len(found) == 0 {
		t.Fatalf("got %d operations of kind %q, more %v, expected some and no more", len(found), k, more)
	}
	return found
}

// If a process is killed after it has accepted an operation, and before the operation begins, the
// operation is not lost.
func TestAcceptedOperationSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	accepted := mustStart(t, mustOpen(t, dir), Verify, "graph", nil)
	next := mustOpen(t, dir)
	runManager(t, next)
	if got := waitUntilEnded(t, next, accepted.ID); got.State != Failed || got.Error != "interrupted by a restart" {
		t.Errorf("got %+v, expected a failure because of the restart", got)
	}

	// Resume may fail.
	other := t.TempDir()
	accepted = mustStart(t, mustOpen(t, other), Rebuild, "graph", nil)
	next = mustOpen(t, other)
	next.OnRestart(Rebuild, func(Info) (Func, error) { return nil, errors.New("no such projection") })
	runManager(t, next)
	if got := waitUntilEnded(t, next, accepted.ID); got.State != Failed || !strings.HasSuffix(got.Error, "no such projection") {
		t.Errorf("got %+v, expected a failure with the error of Resume", got)
	}
}

func TestListReturnsNewestFirst(t *testing.T) {
	m := mustOpen(t, t.TempDir())
	var want []string
	for i := range 7 {
		id := mustStart(t, m, Verify, fmt.Sprint(i), nil).ID
		want = append([]string{id}, want...)
		mustStart(t, m, Snapshot, fmt.Sprint(i), nil)
	}

	var got []string
	before := ""
	for {
		page, more := m.List(Verify, before, 3)
		for _, i := range page {
			got = append(got, i.ID)
			before = i.ID
		}
		if !more {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pages have other operations (-want +got)\n%s", diff)
	}
}

func TestOldestEndedOperationsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	m := mustOpen(t, dir)
	pending := mustStart(t, m, Snapshot, "graph", nil).ID
	var ids []string
	for range maxOperations + 5 {
		id := mustStart(t, m, Verify, "inbox", nil).ID
		ids = append(ids, id)
		if _, err := m.Cancel(id); err != nil {
			t.Fatal(err)
		}
	}

	found, _ := mustOpen(t, dir).List("", "", 2*maxOperations)
	if len(found) != maxOperations || found[0].ID != ids[len(ids)-1] || found[maxOperations-1].ID != pending {
		t.Errorf("got %d operations from %s to %s, expected %d from %s to %s",
			len(found), found[len(found)-1].ID, found[0].ID, maxOperations, pending, ids[len(ids)-1])
	}
	if _, err := m.Get(ids[0]); !errors.Is(err, ErrNotFound) {
		t.Errorf("the oldest: got %v, expected %v", err, ErrNotFound)
	}
}

// The bytes of the files of this version never change.
func TestFileFormatIsStable(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := mustOpen(t, dir)
		if _, err := m.Start(Rebuild, "graph", map[string]any{"partitions": []int{7}, "share": 0.5}, nil); err != nil {
			t.Fatal(err)
		}
		runManager(t, m)
		waitUntilEnded(t, m, mustStart(t, m, Verify, "inbox", func(_ context.Context, p *replay.Progress) (string, error) {
			p.StartPhase(replay.Comparing, "rows", 1000)
			p.SetDone(990)
			letTimePass(90 * time.Second)
			return "2 rows of partition 7 differ", errors.New("inbox differs")
		}).ID)
	})

	for name, golden := range map[string]string{
		"20000101-000000.000000.json": "running.json", "20000101-000000.000001.json": "failed.json",
	} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("testdata", "golden", golden))
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", golden, diff)
		}
	}
}

// A file that does not contain an operation disturbs no operation, and stays.
func TestDamagedFilesAreLeftInPlace(t *testing.T) {
	dir := t.TempDir()
	good := mustStart(t, mustOpen(t, dir), Verify, "graph", nil)
	data, err := os.ReadFile(filepath.Join(dir, good.ID+".json"))
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"a.json": string(data),
		"b.json": "{",
		"c.json": `{"version": 2}`,
		"d.json": `{"version": 1, "operation_id": "d", "kind": "verify", "state": "odd", "created": "2000-01-01T00:00:00Z"}`,
		"e.json": `{"version": 1, "operation_id": "e", "state": "running", "created": "2000-01-01T00:00:00Z"}`,
		"notes":  "of an operator",
	}
	for name, content := range bad {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "x.json.tmp"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	found, _ := mustOpen(t, dir).List("", "", 10)
	if len(found) != 1 || found[0].ID != good.ID {
		t.Errorf("got %+v, expected only operation %s", found, good.ID)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != len(bad)+1 {
		t.Errorf("the directory has %v, %v, expected %d files", left, err, len(bad)+1)
	}
}

// letTimePass advances the clock of a synctest bubble.
func letTimePass(d time.Duration) { <-time.After(d) }

// After a user was erased, no file contains what the report or the error of an operation said, in
// this process and in the next one.
func TestRemovedTextsAreInNoFile(t *testing.T) {
	dir := t.TempDir()
	m := mustOpen(t, dir)
	stop := runManager(t, m)
	const user = "zoe-to-be-erased"
	text := func(report string, err error) Func {
		return func(context.Context, *replay.Progress) (string, error) { return report, err }
	}
	differs := waitUntilEnded(t, m, mustStart(t, m, Verify, "graph", text("the row of "+user+" differs", errors.New(user+" differs"))).ID)
	silent := waitUntilEnded(t, m, mustStart(t, m, Verify, "seen", text("", nil)).ID)
	erased := waitUntilEnded(t, m, mustStart(t, m, Erase, "", text("deleted at sequence 7", nil)).ID)

	for range 2 { // a second erasure changes nothing more
		if err := m.RemoveTexts(); err != nil {
			t.Fatal(err)
		}
	}

	stop()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("expected three files, got %v, %v", files, err)
	}
	for _, file := range files {
		if data, err := os.ReadFile(file); err != nil || strings.Contains(string(data), user) {
			t.Errorf("%s still names the user: %v\n%s", file, err, data)
		}
	}

	differs.Report, differs.Error = removedText, removedText
	restarted := mustOpen(t, dir)
	for _, want := range []Info{differs, silent, erased} {
		got, err := restarted.Get(want.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", want.ID, diff)
		}
	}
}
