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
			t.Errorf("Run returned %v, expected no error", err)
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

// blockingFunc returns an operation that closes began when it runs. The operation ends with the
// error that is sent to result, or when its context ends.
func blockingFunc(report string) (blocking Func, began chan struct{}, result chan error) {
	began = make(chan struct{})
	result = make(chan error, 1)
	blocking = func(ctx context.Context, p *replay.Progress) (string, error) {
		p.StartPhase(replay.Comparing, "rows", 10)
		p.Add(3)
		close(began)
		select {
		case err := <-result:
			return report, err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return blocking, began, result
}

// An operation ends with the report and the error of its function, also if the function panics. A
// long report is cut.
func TestOutcomeOfAnOperationIsKept(t *testing.T) {
	m := mustOpen(t, t.TempDir())
	runManager(t, m)

	for _, c := range []struct {
		name      string
		report    string // of the function
		err       error  // of the function
		wantState State
		wantError string
	}{
		{"succeeded", "compared 7 rows", nil, Succeeded, ""},
		{"failed with a report", "2 of 7 rows differ", errors.New("graph differs"), Failed, "graph differs"},
		{"context canceled by nobody", "", context.Canceled, Failed, "context canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			blocking, began, result := blockingFunc(c.report)
			id := mustStart(t, m, Verify, "graph", blocking).ID
			<-began
			running, err := m.Get(id)
			if err != nil || running.State != Running || running.Done != 3 || running.Total != 10 || running.Unit != "rows" {
				t.Errorf("while it runs: got %+v, %v, expected state running and 3 of 10 rows", running, err)
			}

			result <- c.err
			got := waitUntilEnded(t, m, id)
			if got.State != c.wantState || got.Report != c.report || got.Error != c.wantError {
				t.Errorf("got state %s, report %q and error %q, expected %s, %q and %q",
					got.State, got.Report, got.Error, c.wantState, c.report, c.wantError)
			}
			if got.Ended.IsZero() || got.Done != 3 {
				t.Errorf("got %d rows done and the end %v, expected 3 and the time of the end", got.Done, got.Ended)
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
		t.Error("a cancelled operation began, expected that it never begins")
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
		first            Kind
		firstProjection  string // empty means all
		second           Kind
		secondProjection string
		wantConflict     bool
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
		name := fmt.Sprintf("%s of %q, then %s of %q", c.first, c.firstProjection, c.second, c.secondProjection)
		t.Run(name, func(t *testing.T) {
			m := mustOpen(t, t.TempDir())
			first := mustStart(t, m, c.first, c.firstProjection, nil)

			_, err := m.Start(c.second, c.secondProjection, nil, nil)
			if c.wantConflict {
				var conflict *ConflictError
				if !errors.As(err, &conflict) || conflict.With.ID != first.ID || !strings.Contains(err.Error(), first.ID) {
					t.Errorf("got %v, expected a conflict that names operation %s", err, first.ID)
				}
			} else if err != nil {
				t.Errorf("got %v, expected no conflict", err)
			}

			// An operation that has ended conflicts with no other.
			if _, err := m.Cancel(first.ID); err != nil {
				t.Fatal(err)
			}
			if c.wantConflict {
				mustStart(t, m, c.second, c.secondProjection, nil)
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

			// After half a second, the progress never changes at the moment when it is sampled.
			letTimePass(500 * time.Millisecond)
			for range 60 {
				p.Add(1000)
				letTimePass(time.Second)
			}
			for range 60 {
				p.Add(100)
				letTimePass(time.Second)
			}

			// The rate of another phase is measured from its start.
			p.StartPhase(replay.Comparing, "rows", 10)
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
		if err != nil {
			t.Errorf("Watch returned %v, expected no error", err)
		}
		if updates < 15 || updates > 30 {
			t.Errorf("got %d updates, expected about one per second, 15 to 30", updates)
		}
		if !units["rows"] {
			t.Errorf("got updates with the units %v, expected some with rows", units)
		}
	})
}

// After a restart, an operation whose kind can be resumed continues, one that an operator has
// cancelled stays cancelled, and others fail.
func TestRestartContinuesOrFailsOperations(t *testing.T) {
	dir := t.TempDir()
	m := mustOpen(t, dir)
	stop := runManager(t, m)

	// Run three operations. The repair does not stop at once when it is cancelled.
	rebuild, rebuildBegan, _ := blockingFunc("")
	if _, err := m.Start(Rebuild, "graph", map[string]any{"partitions": []int{1, 2}}, rebuild); err != nil {
		t.Fatal(err)
	}
	verify, verifyBegan, _ := blockingFunc("")
	mustStart(t, m, Verify, "inbox", verify)
	repair, repairBegan, _ := blockingFunc("")
	repairMayEnd := make(chan struct{})
	cancelled := mustStart(t, m, Repair, "seen", func(ctx context.Context, p *replay.Progress) (string, error) {
		_, err := repair(ctx, p)
		<-repairMayEnd
		return "", err
	})

	<-rebuildBegan
	<-verifyBegan
	<-repairBegan
	if _, err := m.Cancel(cancelled.ID); err != nil {
		t.Fatal(err)
	}

	// Copy the files that a process would leave behind if it were killed now. Then stop this one in
	// order.
	killedDir := t.TempDir()
	if err := os.CopyFS(killedDir, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	close(repairMayEnd)
	stop()

	for _, k := range []Kind{Rebuild, Verify} {
		if i := mustList(t, m, k)[0]; i.State != Running {
			t.Errorf("%s: got %+v, expected state running", k, i)
		}
	}
	if _, err := m.Start(Verify, "seen", nil, verify); !errors.Is(err, ErrClosed) {
		t.Errorf("start after the end: got %v, expected %v", err, ErrClosed)
	}

	for name, dir := range map[string]string{"stopped": dir, "killed": killedDir} {
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
			return "continued", nil
		}, nil
	})
	rebuilt := mustList(t, m, Rebuild)[0]

	// An operation that is to be continued conflicts with others already.
	if _, err := m.Start(Rollback, "graph", nil, nil); err == nil {
		t.Error("a rollback was accepted, expected a conflict with the rebuild")
	}

	runManager(t, m)
	got := waitUntilEnded(t, m, rebuilt.ID)
	if got.State != Succeeded || got.Report != "continued" {
		t.Errorf("rebuild: got state %s and report %q, expected %s and %q", got.State, got.Report, Succeeded, "continued")
	}
	if want := `{"partitions":[1,2]}`; string(resumed.Args) != want {
		t.Errorf("rebuild: resumed with the arguments %s, expected %s", resumed.Args, want)
	}
	if len(got.Args) > 0 {
		t.Errorf("rebuild: got the arguments %s after its end, expected none", got.Args)
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

	// The function that resumes an operation may fail.
	other := t.TempDir()
	accepted = mustStart(t, mustOpen(t, other), Rebuild, "graph", nil)
	next = mustOpen(t, other)
	next.OnRestart(Rebuild, func(Info) (Func, error) { return nil, errors.New("no such projection") })
	runManager(t, next)
	if got := waitUntilEnded(t, next, accepted.ID); got.State != Failed || !strings.HasSuffix(got.Error, "no such projection") {
		t.Errorf("got %+v, expected a failure with the error of the function that resumes, %q", got, "no such projection")
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
		"20000101-000000.000000.json": "running.json",
		"20000101-000000.000001.json": "failed.json",
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
			t.Errorf("%s differs from the golden file (-want +got):\n%s", golden, diff)
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

	badFiles := map[string]string{
		"a.json": string(data),
		"b.json": "{",
		"c.json": `{"version": 2}`,
		"d.json": `{"version": 1, "operation_id": "d", "kind": "verify", "state": "odd", "created": "2000-01-01T00:00:00Z"}`,
		"e.json": `{"version": 1, "operation_id": "e", "state": "running", "created": "2000-01-01T00:00:00Z"}`,
		"notes":  "of an operator",
	}
	for name, content := range badFiles {
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

	// Only the temporary file is removed.
	remaining, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(remaining) != len(badFiles)+1 {
		t.Errorf("the directory has the files %v, expected %d", remaining, len(badFiles)+1)
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

	runToEnd := func(k Kind, projection, report string, err error) Info {
		returns := func(context.Context, *replay.Progress) (string, error) { return report, err }
		return waitUntilEnded(t, m, mustStart(t, m, k, projection, returns).ID)
	}
	differs := runToEnd(Verify, "graph", "the row of "+user+" differs", errors.New(user+" differs"))
	silent := runToEnd(Verify, "seen", "", nil)
	erased := runToEnd(Erase, "", "deleted at sequence 7", nil)
	failed := runToEnd(Erase, "", "graph: generation 2 serves", errors.New("the row of "+user+" cannot be decoded"))

	// A second call, as by another erasure, changes nothing more.
	for range 2 {
		if err := m.RemoveTexts(); err != nil {
			t.Fatal(err)
		}
	}
	stop()

	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 4 {
		t.Fatalf("got the files %v, %v, expected four", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		if strings.Contains(string(data), user) {
			t.Errorf("%s contains the id of the user, expected that it is removed:\n%s", file, data)
		}
	}

	// Only the texts that named the user have changed.
	differs.Report = removedText
	differs.Error = removedText
	failed.Error = removedText
	restarted := mustOpen(t, dir)
	for _, want := range []Info{differs, silent, erased, failed} {
		got, err := restarted.Get(want.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("operation %s after a restart (-want +got):\n%s", want.ID, diff)
		}
	}
}
