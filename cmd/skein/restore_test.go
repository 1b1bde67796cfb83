package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/snapshot"
)

// takeSnapshot takes a snapshot of the stores of a service that is not running.
func takeSnapshot(t *testing.T, dir, target, name string) {
	t.Helper()
	b, err := bucket.NewDir(target)
	if err != nil {
		t.Fatal(err)
	}
	var stores []snapshot.Store
	for _, p := range all.All(all.Settings{}) {
		s, err := store.Open(store.Options{Dir: filepath.Join(dir, service.StoresDir), Projection: p})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		stores = append(stores, s)
	}

	snapshots := snapshot.New(snapshot.Options{
		Bucket: b, Scratch: filepath.Join(dir, "scratch"), Stores: func() []snapshot.Store { return stores },
	})
	if _, err := snapshots.Take(t.Context(), name, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// TestLostStoresAreRestoredFromSnapshot takes a snapshot of a service, loses its stores, and
// restores them.
func TestLostStoresAreRestoredFromSnapshot(t *testing.T) {
	t.Parallel()
	dir, target := t.TempDir(), t.TempDir()
	logger := slog.New(slog.DiscardHandler)
	api, stop := startService(t, dir, logger)
	mustPublish(t, api, userFollowed("ann", "bob"))
	stop()

	takeSnapshot(t, dir, target, "one")
	api, stop = startService(t, dir, logger)
	position := mustPublish(t, api, userFollowed("ann", "cid"))

	check := func(wantCode int, want string, args ...string) {
		t.Helper()
		checkRunMatches(t, wantCode, regexp.QuoteMeta(want), args...)
	}

	// While the service runs, only a drill works.
	check(exitFailed, "is open in another process", "restore", "--data", dir, "--target", target)
	check(exitOK, "at sequence 1", "restore", "--data", dir, "--target", target, "--drill", "graph")

	stop()
	check(exitFailed, "there is a store already", "restore", "--data", dir, "--target", target)
	out := checkRun(t, exitOK, "folded the log to sequence 2", "", "restore", "--data", dir, "--target", target, "--drill")
	if n := strings.Count(out, "\n"); n != len(all.All(all.Settings{})) {
		t.Errorf("the drill reports %s", out)
	}

	if err := os.RemoveAll(filepath.Join(dir, service.StoresDir)); err != nil {
		t.Fatal(err)
	}
	check(exitFailed, "setting retention", "restore", "--data", dir, "--target", target, "--seen-retention", "7", "seen")
	check(exitUsage, "no projection", "restore", "--data", dir, "--target", target, "none")
	check(exitOK, "restored from snapshot one at sequence 1", "restore", "--data", dir, "--target", target)
	if left, _ := filepath.Glob(filepath.Join(dir, "drill-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	api, stop = startService(t, dir, logger)
	defer stop()
	res, err := api.Graph().CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{
		AtLeast: position,
		Pairs: []*skeinv1.FollowPair{
			userPair("ann", "bob"),
			userPair("ann", "cid"),
		},
	}))
	if err != nil || len(res.Msg.GetKinds()) != 2 {
		t.Fatalf("%v, %v", res, err)
	}
	for i, kind := range res.Msg.GetKinds() {
		if kind != skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT {
			t.Errorf("follow %d is %v", i, kind)
		}
	}
}

// TestSnapshotOfAnotherLogIsRefused demands that `skein restore` writes no stores if the target has
// the snapshots of another service.
func TestSnapshotOfAnotherLogIsRefused(t *testing.T) {
	t.Parallel()
	target, dirs := t.TempDir(), []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		api, stop := startService(t, dir, slog.New(slog.DiscardHandler))
		mustPublish(t, api, userFollowed("ann", "bob"))
		stop()
	}
	takeSnapshot(t, dirs[0], target, "one")
	if err := os.RemoveAll(filepath.Join(dirs[1], service.StoresDir)); err != nil {
		t.Fatal(err)
	}

	code, out, errOut := runInProcess("restore", "--data", dirs[1], "--target", target)
	if code != exitFailed || !strings.Contains(errOut, "the cursor is of log") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	if _, err := os.Stat(filepath.Join(dirs[1], service.StoresDir)); err == nil {
		t.Error("there are stores")
	}
}

// TestSnapshotsAreListedPrunedAndChecked demands that the commands of `skein snapshot` work on a
// target, with and without a service, and name a damaged manifest.
func TestSnapshotsAreListedPrunedAndChecked(t *testing.T) {
	t.Parallel()
	dir, target := t.TempDir(), t.TempDir()
	api, stop := startService(t, dir, slog.New(slog.DiscardHandler))
	mustPublish(t, api, userFollowed("ann", "bob"))
	stop()
	takeSnapshot(t, dir, target, "one")
	takeSnapshot(t, dir, target, "two")

	if code, out, errOut := runInProcess("snapshot", "list", "--target", target); code != exitOK || strings.Count(out, "\n") != 11 ||
		!regexp.MustCompile(`(?m)^one +graph `).MatchString(out) {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	if code, out, errOut := runInProcess("snapshot", "prune", "--target", target, "one"); code != exitOK || strings.Count(out, "\n") != 5 {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	if code, out, errOut := runInProcess("snapshot", "list", "--target", target, "--json"); code != exitOK || strings.Count(out, `"snapshot":"two"`) != 5 ||
		strings.Contains(out, "one") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}

	b, err := bucket.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	api, stop = startService(t, dir, slog.New(slog.DiscardHandler), func(o *service.Options) { o.Maintenance.Snapshots = b })
	// The service takes a snapshot at once. Wait for it before the test lists, prunes or stops.
	waitUntil(t.Context(), t, func(ctx context.Context) error {
		status, err := getStatus(ctx, api)
		if err == nil && status.GetSnapshots().GetTaken() == 0 {
			err = errors.New("no snapshot is taken")
		}
		return err
	})

	if code, out, errOut := runInProcess("snapshot", "list", "--server", api.URL); code != exitOK ||
		!regexp.MustCompile(`(?m)^two +graph `).MatchString(out) {
		t.Errorf("without a target: exit code %d, %q, %q", code, out, errOut)
	}
	stop()

	for args, want := range map[string]int{
		"snapshot prune --target " + target + " none":               exitFailed,
		"snapshot prune --target " + target + " two --keep-count 1": exitUsage,
		"snapshot prune --target " + target + " --keep-count 1":     exitOK,
		"snapshot check --target " + target:                         exitOK,
		"snapshot list --server 127.0.0.1:1":                        exitFailed,
	} {
		if code, _, errOut := runInProcess(strings.Fields(args)...); code != want {
			t.Errorf("%s: exit code %d, %q", args, code, errOut)
		}
	}

	manifest := filepath.Join(target, "snapshots", "two", "graph.json")
	if err := os.WriteFile(manifest, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := runInProcess("snapshot", "list", "--target", target); code != exitFailed || !strings.Contains(errOut, "two/graph.json") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	if code, out, errOut := runInProcess("snapshot", "check", "--target", target); code != exitFailed || !strings.Contains(out, "cannot be restored: two/graph") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
}

// TestSnapshotContinuesFromArchiveOfRestoredLog restores a snapshot after its log was restored from
// the archive. The new log begins after the events with which the snapshot continues, so these must
// come from the archive.
func TestSnapshotContinuesFromArchiveOfRestoredLog(t *testing.T) {
	t.Parallel()
	dir, target := t.TempDir(), t.TempDir()
	api, stop := startService(t, dir, slog.New(slog.DiscardHandler))
	mustPublish(t, api, userFollowed("ann", "bob"))
	mustPublish(t, api, userFollowed("ann", "cid"))
	stop()
	archiveLog(t, dir)
	takeSnapshot(t, dir, target, "one")
	for _, lost := range []string{service.LogDir, service.StoresDir} {
		if err := os.RemoveAll(filepath.Join(dir, lost)); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errOut := runInProcess("replay", "archive", "restore", "--data", dir); code != exitOK {
		t.Fatal(code, out, errOut)
	}
	code, out, errOut := runInProcess("restore", "--data", dir, "--target", target)
	if code != exitOK || !strings.Contains(errOut, "restored from snapshot one") {
		t.Fatal(code, out, errOut)
	}
}
