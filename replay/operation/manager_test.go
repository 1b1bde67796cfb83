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

func open(t *testing.T, dir string) *Manager {
	t.Helper()
	m, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// run runs a manager and returns what stops it, as a process that ends in order does.
func run(t *testing.T, m *Manager) (stop func()) {
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

func do(t *testing.T, m *Manager, k Kind, projection string, run Func) Info {
	t.Helper()
	i, err := m.Start(k, projection, nil, run)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// wait returns an operation that has ended.
func wait(t *testing.T, m *Manager, id string) (last Info) {
	t.Helper()
	err := m.Watch(t.Context(), id, func(i Info) error { last = i; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// held is an operation that continues until it is let go, or its context ends.
func held(report string) (blocking Func, began chan struct{}, let chan error) {
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

func TestOutcomeOfAnOperationIsKept(t *testing.T) {
	m := open(t, t.TempDir())
	run(t, m)
	for _, c := range []struct {
		name, report, wantError string
		err                     error
		want                    State
	}{
		{"good", "compared 7 rows", "", nil, Succeeded},
		{"bad", "2 of 7 rows differ", "graph differs", errors.New("graph differs"), Failed},
		{"cancelled by itself is a failure", "", "context canceled", context.Canceled, Failed},
	} {
		blocking, began, let := held(c.report)
		id := do(t, m, Verify, "graph", blocking).ID
		<-began
		if now, err := m.Get(id); err != nil || now.State != Running || now.Done != 3 || now.Total != 10 || now.Unit != "rows" {
			t.Errorf("%s: %+v, %v", c.name, now, err)
		}
		let <- c.err
		got := wait(t, m, id)
		if got.State != c.want || got.Report != c.report || got.Error != c.wantError || got.Ended.IsZero() || got.Done != 3 {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	got := wait(t, m, do(t, m, Verify, "graph", func(context.Context, *replay.Progress) (string, error) { panic("a bug") }).ID)
	if got.State != Failed || !strings.Contains(got.Error, "a bug") {
		t.Errorf("%+v", got)
	}
	long := strings.Repeat("é", maxTextBytes)
	got = wait(t, m, do(t, m, Verify, "", func(context.Context, *replay.Progress) (string, error) { return long, nil }).ID)
	if len(got.Report) > maxTextBytes || !strings.HasSuffix(got.Report, "é\n… (cut)") {
		t.Errorf("%d bytes: …%q", len(got.Report), got.Report[len(got.Report)-20:])
	}
}

func TestCancelledOperationEnds(t *testing.T) {
	m := open(t, t.TempDir())
	// Before it begins: it never does.
	early := do(t, m, Rebuild, "graph", func(context.Context, *replay.Progress) (string, error) {
		t.Error("a cancelled operation began")
		return "", nil
	})
	if got, err := m.Cancel(early.ID); err != nil || got.State != Cancelled {
		t.Errorf("%+v, %v", got, err)
	}
	run(t, m)
	blocking, began, _ := held("")
	id := do(t, m, Rebuild, "graph", blocking).ID
	<-began
	if _, err := m.Cancel(id); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, m, id); got.State != Cancelled || got.Error != "" {
		t.Errorf("%+v", got)
	}
	// Again, and of what there is none.
	if got, err := m.Cancel(id); err != nil || got.State != Cancelled {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := m.Cancel("x"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	// A function that cannot stop any more ends well.
	late := do(t, m, Rebuild, "graph", func(ctx context.Context, _ *replay.Progress) (string, error) {
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrCancelled) {
			t.Error(context.Cause(ctx))
		}
		return "it was done already", nil
	})
	if _, err := m.Cancel(late.ID); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, m, late.ID); got.State != Succeeded && got.State != Cancelled {
		t.Errorf("%+v", got)
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
		m := open(t, t.TempDir())
		first := do(t, m, c.first, c.of, nil)
		_, err := m.Start(c.second, c.other, nil, nil)
		var conflict *ConflictError
		switch {
		case !c.conflict && err != nil:
			t.Errorf("%+v: %v", c, err)
		case c.conflict && (!errors.As(err, &conflict) || conflict.With.ID != first.ID || !strings.Contains(err.Error(), first.ID)):
			t.Errorf("%+v: %v", c, err)
		}
		// An operation that has ended is in the way of no other.
		if _, err := m.Cancel(first.ID); err != nil {
			t.Fatal(err)
		}
		if c.conflict {
			do(t, m, c.second, c.other, nil)
		}
	}
}

// The rate is that of the last half minute, and the time that is left follows from it. A watcher gets at most one message
// each second.
func TestRateAndRemainingTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := open(t, dir)
		run(t, m)
		id := do(t, m, Rebuild, "graph", func(_ context.Context, p *replay.Progress) (string, error) {
			p.StartPhase(replay.Reading, "envelopes", 100_000)
			pass(500 * time.Millisecond) // out of step with who looks
			for range 60 {
				p.Add(1000)
				pass(time.Second)
			}
			for range 60 {
				p.Add(100)
				pass(time.Second)
			}
			p.StartPhase(replay.Comparing, "rows", 10) // another phase begins anew
			pass(2 * time.Second)
			return "", nil
		}).ID
		pass(30*time.Second + 250*time.Millisecond)
		if i, _ := m.Get(id); i.Rate != 1000 || i.Done != 30_000 || i.Remaining != 70*time.Second {
			t.Errorf("%+v", i)
		}
		pass(70 * time.Second)
		if i, _ := m.Get(id); i.Rate != 100 || i.Done != 64_000 || i.Remaining != 360*time.Second {
			t.Errorf("%+v", i)
		}
		seen, units := 0, map[string]bool{}
		err := m.Watch(t.Context(), id, func(i Info) error {
			seen++
			units[i.Unit] = true
			if i.Unit == "rows" && !i.State.Ended() && (i.Rate != 0 || i.Remaining >= 0) {
				t.Errorf("%+v", i)
			}
			return nil
		})
		if err != nil || seen < 15 || seen > 30 || !units["rows"] {
			t.Error(seen, units, err)
		}
	})
}

func TestRestartContinuesOrFailsOperations(t *testing.T) {
	dir, killed := t.TempDir(), t.TempDir()
	m := open(t, dir)
	stop := run(t, m)
	rebuild, rebuilding, _ := held("")
	verify, verifying, _ := held("")
	repair, repairing, _ := held("")
	if _, err := m.Start(Rebuild, "graph", map[string]any{"partitions": []int{1, 2}}, rebuild); err != nil {
		t.Fatal(err)
	}
	do(t, m, Verify, "inbox", verify)
	slow := make(chan struct{})
	cancelled := do(t, m, Repair, "seen", func(ctx context.Context, p *replay.Progress) (string, error) {
		_, err := repair(ctx, p)
		<-slow // is asked to end, and takes its time
		return "", err
	})
	<-rebuilding
	<-verifying
	<-repairing
	if _, err := m.Cancel(cancelled.ID); err != nil {
		t.Fatal(err)
	}
	// What a process that is killed now leaves behind, and one that stops in order.
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	close(slow)
	stop()
	for _, k := range []Kind{Rebuild, Verify} {
		if i := mustList(t, m, k)[0]; i.State != Running {
			t.Errorf("%+v", i)
		}
	}
	if _, err := m.Start(Verify, "seen", nil, verify); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	for name, dir := range map[string]string{"stopped": dir, "killed": killed} {
		t.Run(name, func(t *testing.T) { afterRestart(t, dir) })
	}
}

func afterRestart(t *testing.T, dir string) {
	m := open(t, dir)
	var resumed Info
	m.OnRestart(Rebuild, func(i Info) (Func, error) {
		resumed = i
		return func(_ context.Context, p *replay.Progress) (string, error) {
			p.StartPhase(replay.Comparing, "rows", 4)
			return "went on", nil
		}, nil
	})
	rebuilt := mustList(t, m, Rebuild)[0]
	// What is still to continue is in the way of others.
	if _, err := m.Start(Rollback, "graph", nil, nil); err == nil {
		t.Error("a rollback beside a rebuild")
	}
	run(t, m)
	got := wait(t, m, rebuilt.ID)
	if got.State != Succeeded || got.Report != "went on" || string(resumed.Args) != `{"partitions":[1,2]}` || len(got.Args) > 0 {
		t.Errorf("%+v, resumed %+v", got, resumed)
	}
	if got := mustList(t, m, Verify)[0]; got.State != Failed || got.Error != "interrupted by a restart" {
		t.Errorf("%+v", got)
	}
	if got := mustList(t, m, Repair)[0]; got.State != Cancelled {
		t.Errorf("%+v", got)
	}
	// A third process finds the same, and ids continue to rise.
	third := open(t, dir)
	if diff := cmp.Diff(mustList(t, m, ""), mustList(t, third, "")); diff != "" {
		t.Error(diff)
	}
	if i := do(t, third, Rebuild, "graph", nil); i.ID <= mustList(t, m, "")[0].ID {
		t.Error(i.ID)
	}
}

func mustList(t *testing.T, m *Manager, k Kind) []Info {
	t.Helper()
	found, more := m.List(k, "", 100)
	if more || len(found) == 0 {
		t.Fatalf("%d operations of kind %q, more %v", len(found), k, more)
	}
	return found
}

// A process that is killed between accepting an operation and beginning it has noted it.
func TestAcceptedOperationSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	accepted := do(t, open(t, dir), Verify, "graph", nil)
	next := open(t, dir)
	run(t, next)
	if got := wait(t, next, accepted.ID); got.State != Failed || got.Error != "interrupted by a restart" {
		t.Errorf("%+v", got)
	}
	// Resuming may fail.
	other := t.TempDir()
	accepted = do(t, open(t, other), Rebuild, "graph", nil)
	next = open(t, other)
	next.OnRestart(Rebuild, func(Info) (Func, error) { return nil, errors.New("no such projection") })
	run(t, next)
	if got := wait(t, next, accepted.ID); got.State != Failed || !strings.HasSuffix(got.Error, "no such projection") {
		t.Errorf("%+v", got)
	}
}

func TestListReturnsNewestFirst(t *testing.T) {
	m := open(t, t.TempDir())
	var want []string
	for i := range 7 {
		id := do(t, m, Verify, fmt.Sprint(i), nil).ID
		want = append([]string{id}, want...)
		do(t, m, Snapshot, fmt.Sprint(i), nil)
	}
	var got []string
	before := ""
	for {
		page, more := m.List(Verify, before, 3)
		for _, i := range page {
			got, before = append(got, i.ID), i.ID
		}
		if !more {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOldestEndedOperationsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	m := open(t, dir)
	standing := do(t, m, Snapshot, "graph", nil).ID
	var ids []string
	for range maxOperations + 5 {
		id := do(t, m, Verify, "inbox", nil).ID
		ids = append(ids, id)
		if _, err := m.Cancel(id); err != nil {
			t.Fatal(err)
		}
	}
	found, _ := open(t, dir).List("", "", 2*maxOperations)
	if len(found) != maxOperations || found[0].ID != ids[len(ids)-1] || found[maxOperations-1].ID != standing {
		t.Errorf("%d are kept, from %s to %s", len(found), found[len(found)-1].ID, found[0].ID)
	}
	if _, err := m.Get(ids[0]); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// The files of this version, to the byte.
func TestFileFormatIsStable(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := open(t, dir)
		if _, err := m.Start(Rebuild, "graph", map[string]any{"partitions": []int{7}, "share": 0.5}, nil); err != nil {
			t.Fatal(err)
		}
		run(t, m)
		wait(t, m, do(t, m, Verify, "inbox", func(_ context.Context, p *replay.Progress) (string, error) {
			p.StartPhase(replay.Comparing, "rows", 1000)
			p.SetDone(990)
			pass(90 * time.Second)
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
			t.Errorf("%s: %s", golden, diff)
		}
	}
}

// A file that belongs to no operation disturbs none, and stays.
func TestDamagedFilesAreLeftInPlace(t *testing.T) {
	dir := t.TempDir()
	good := do(t, open(t, dir), Verify, "graph", nil)
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
	found, _ := open(t, dir).List("", "", 10)
	if len(found) != 1 || found[0].ID != good.ID {
		t.Errorf("%+v", found)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != len(bad)+1 {
		t.Error(left, err)
	}
}

// pass lets time go by, in a bubble of synctest.
func pass(d time.Duration) { <-time.After(d) }

// After a user was erased, no file of an operation has what its report or its error said, in this process and in the next one.
func TestRemovedTextsAreInNoFile(t *testing.T) {
	dir := t.TempDir()
	m := open(t, dir)
	stop := run(t, m)
	const user = "zoe-to-be-erased"
	text := func(report string, err error) Func {
		return func(context.Context, *replay.Progress) (string, error) { return report, err }
	}
	differs := wait(t, m, do(t, m, Verify, "graph", text("the row of "+user+" differs", errors.New(user+" differs"))).ID)
	silent := wait(t, m, do(t, m, Verify, "seen", text("", nil)).ID)
	erased := wait(t, m, do(t, m, Erase, "", text("deleted at sequence 7", nil)).ID)

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
	restarted := open(t, dir)
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
