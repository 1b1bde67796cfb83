package service

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/operator"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/erase"
	"github.com/skein-feed/skein/replay/operation"
	"github.com/skein-feed/skein/replay/worker"
)

// TestRollbackShowsNoErasedUser: an erasure fails after the log has begun the new epoch, because no
// store can be built. The previous generation of the graph is from before the deletion of the user,
// which the scrubbed log does not have under that id. A rollback would show the user again, so it
// is refused. The erasure can be repeated.
func TestRollbackShowsNoErasedUser(t *testing.T) {
	t.Parallel()
	const user = "somebody-to-be-erased"
	dir := t.TempDir()
	archive, err := bucket.NewDir(filepath.Join(dir, "archive"))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := mustRunService(t, dir, func(o *Options) {
		o.Maintenance = MaintenanceOptions{Archive: archive, ArchiveEvery: time.Minute, Retention: -1}
	})
	operations := newOperator(s.Operations, s.OfferedOperations())
	run := func(r operator.OperationRequest) operation.Info {
		t.Helper()
		started, err := operations.Start(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		ended, err := s.awaitOperation(t.Context(), started.GetOperationId())
		if err != nil {
			t.Fatal(err)
		}
		return ended
	}
	eraseUser := operator.OperationRequest{Kind: skeinv1.OperationKind_OPERATION_KIND_ERASE, Users: []string{user}}
	rollBack := operator.OperationRequest{Kind: skeinv1.OperationKind_OPERATION_KIND_ROLLBACK, Projection: "graph"}
	graph := s.Store("graph")
	hasUser := func() bool { return conformance.RowsOf(t, graph.Serving()).With(user) }

	// The user follows somebody, and the graph gets a second generation.
	published, err := s.publisher.Publish(t.Context(), []*skeinv1.Event{{Kind: &skeinv1.Event_UserFollowed{
		UserFollowed: &skeinv1.UserFollowed{UserId: user, TargetUserId: "somebody-else"},
	}}}, eventlog.PublishOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		graph.WaitFor(t.Context(), published.Position.Seq),
		s.rebuildAsOperation(t.Context(), graph),
		s.awaitArchiver(t.Context()),
	)
	if err != nil {
		t.Fatal(err)
	}
	if !hasUser() {
		t.Fatal("before the erasure, the graph has no row of the user, expected some")
	}

	// The erasure fails when it builds the first store.
	s.options.Worker = &worker.Command{Path: filepath.Join(dir, "no-such-program")}
	if ended := run(eraseUser); ended.State != operation.Failed || s.log.Epoch() != 2 {
		t.Fatalf("the erasure ended as %q with %q in epoch %d, expected that it failed in epoch 2", ended.State, ended.Error, s.log.Epoch())
	}
	if hasUser() {
		t.Error("after the deletion, the graph has rows of the user, expected none")
	}

	ended := run(rollBack)
	if ended.State != operation.Failed || !strings.Contains(ended.Error, erase.ErrBeforeErasure.Error()) {
		t.Errorf("the rollback ended as %q with %q, expected that it failed with %q", ended.State, ended.Error, erase.ErrBeforeErasure)
	}
	if hasUser() {
		t.Error("after the rollback, the graph has rows of the user, expected none")
	}

	s.options.Worker = nil
	if ended := run(eraseUser); ended.State != operation.Succeeded {
		t.Errorf("the erasure ended as %q with %q when it was repeated, expected that it succeeded", ended.State, ended.Error)
	}
	if st := graph.Status(); st.Previous != 0 {
		t.Errorf("after the erasure, generation %d is the previous one, expected none", st.Previous)
	}
	if found := conformance.FilesWith(t, filepath.Join(dir, StoresDir), user); len(found) > 0 {
		t.Errorf("after the erasure, %v contain the id, expected no file", found)
	}
}

// TestStartAndErasureRemoveTemporaryStores: what a killed preparation, a killed snapshot or a
// killed restore has left may have rows of a user who was erased since. A start removes it, and an
// erasure does so, too, because the removal may have failed. A preparation from the present epoch
// of the log stays: it continues.
func TestStartAndErasureRemoveTemporaryStores(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	snapshots, err := bucket.NewDir(filepath.Join(dir, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	s, stop := mustRunService(t, dir)
	stop()

	prepare := func(name string, epoch uint32) {
		t.Helper()
		p := live.Preparation{
			Options: store.Options{FS: vfs.Default, Dir: filepath.Join(dir, StoresDir), Projection: inbox.New(inbox.DefaultSettings())},
			Log:     s.log.ID(), Epoch: epoch,
		}
		if name != "inbox" {
			p.Options.Projection = renamed{p.Options.Projection, name}
		}
		if err := p.Begin(); err != nil {
			t.Fatal(err)
		}
	}
	const present, earlier = 1, 0
	prepare("inbox", present)
	prepare("of-the-next-version", earlier)
	leftovers := []string{
		"shadow-snapshots/inbox/000007.sst",
		"graph/shadow-restoring/graph/000001/000007.sst",
	}
	prepared := []string{
		"graph/prepared/graph/000001.parts/events",
		"of-the-next-version/prepared/of-the-next-version/000001.parts/saved",
	}
	stays := "inbox/prepared/inbox/000001.parts/events"
	write := func(names ...string) {
		t.Helper()
		for _, name := range names {
			name = filepath.Join(dir, StoresDir, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o750), os.WriteFile(name, []byte("left"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, StoresDir, filepath.FromSlash(name)))
		return err == nil
	}

	write(leftovers...)
	write(prepared...)
	write(stays)
	s, _ = mustRunService(t, dir, func(o *Options) { o.Maintenance.Snapshots = snapshots })
	for _, name := range slices.Concat(leftovers, prepared) {
		if exists(name) {
			t.Errorf("after a start, %s is there, expected that it is removed", name)
		}
	}
	if !exists(stays) {
		t.Errorf("after a start, %s is not there, expected that it stays", stays)
	}

	write(leftovers...)
	if err := s.removeTemporaryStores(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range leftovers {
		if exists(name) {
			t.Errorf("after an erasure, %s is there, expected that it is removed", name)
		}
	}
}

// renamed is a projection that only a later version of the program has.
type renamed struct {
	projections.Projection

	name string
}

func (r renamed) Name() string { return r.name }
