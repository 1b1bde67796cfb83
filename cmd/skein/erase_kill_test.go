package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestErasureContinuesAfterKills kills the service during ten erasures of two users each, each time
// at another point: when a file appears or is replaced in the data directory. The erasure must
// continue after the restart and succeed. In the end no file may contain one of the ids, the other
// users must follow whom they followed, and all stores must be equal to the log.
func TestErasureContinuesAfterKills(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*waitLimit)
	defer cancel()
	dir := t.TempDir()
	e := &erasureUnderKills{t: t, server: &serverProcess{t: t, dir: dir, flags: []string{
		"--archive-every", "100ms", "--snapshots", filepath.Join(dir, "data", "snapshots"), "--snapshot-every", "24h",
	}}}
	t.Cleanup(func() { e.server.kill() })
	if err := e.server.start(ctx); err != nil {
		t.Fatal(err)
	}
	e.api = e.server.newClient()

	// The oldest segment of the archive names all users who may be erased, so every erasure
	// replaces the segment.
	const maxErased = 100
	var evs []*skeinv1.Event
	for i := range maxErased {
		evs = append(evs, userFollowed("bob", erasedUserID(i)))
	}
	mustPublish(t, e.api, evs...)

	// These users are not erased.
	const followeesOfAnn = 20
	for i := range followeesOfAnn {
		mustPublish(t, e.api, userFollowed("ann", fmt.Sprint("u", i)))
	}

	// Each erasure writes these files in this order.
	type erasurePoint struct{ name, files string }
	points := []erasurePoint{
		{"the erasure was accepted", "operations/*"},
		{"the deletions were flushed", "erased.json"},
		{"the oldest events of the archive were replaced", "archive/archive/*-00000000000000000001-*"},
		{"the graph is built", "stores/graph/shadow-next*"},
		{"the graph was built", "stores/graph/0*"},
		{"the inboxes are built", "stores/inbox/shadow-next*"},
		{"the seen store is built", "stores/seen/shadow-next*"},
		{"the counters are built", "stores/counters/shadow-next*"},
		{"the notifications were built", "stores/notifications/0*"},
		{"a snapshot is taken", "snapshots/snapshot-files/*"},
	}
	if testing.Short() {
		points = []erasurePoint{points[2], points[7]}
	}

	for _, point := range points {
		// An erasure may pass the point before the test sees the file. Then try with two more
		// users.
		killed := false
		for !killed {
			if len(e.erased) == maxErased {
				t.Fatalf("got no erasure that was killed when %s, want one", point.name)
			}
			killed = e.eraseAndKillAt(ctx, filepath.Join(dir, "data", point.files))
		}
		t.Logf("killed when %s", point.name)
	}

	res, err := e.api.Graph().ListFollowing(ctx, connect.NewRequest(&skeinv1.ListFollowingRequest{UserId: "ann", PageSize: 100}))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(res.Msg.GetEntries()); got != followeesOfAnn {
		t.Errorf("ListFollowing of ann: got %d users, want %d", got, followeesOfAnn)
	}

	checkStoresEqualLog(ctx, t, e.api)
	if err := e.server.stopGracefully(); err != nil {
		t.Error(err)
	}
	for _, user := range e.erased {
		if found := conformance.FilesWith(t, dir, user); len(found) > 0 {
			t.Errorf("files with the id %s: got %v, want none", user, found)
		}
	}
}

// erasedUserID returns the id of the i-th user who is erased.
func erasedUserID(i int) string { return fmt.Sprintf("to-be-erased-%02d", i) }

// erasureUnderKills is a service that is killed while it erases users.
type erasureUnderKills struct {
	t      *testing.T
	server *serverProcess
	api    *command.Client
	// erased are all users who were erased.
	erased []string
}

// eraseAndKillAt publishes follows of two new users and erases them. It kills the service when a
// file that matches the pattern appears or is replaced, starts it again, and waits until the
// erasure has succeeded. It reports whether the erasure was still under way at the kill.
func (e *erasureUnderKills) eraseAndKillAt(ctx context.Context, pattern string) (killed bool) {
	t := e.t
	t.Helper()
	users := []string{erasedUserID(len(e.erased)), erasedUserID(len(e.erased) + 1)}
	e.erased = append(e.erased, users...)
	for i := range 20 {
		other := fmt.Sprint("u", i)
		for _, user := range users {
			mustPublish(t, e.api, userFollowed(user, other), userFollowed(other, user)) //nolint:contextcheck // it has the context of the test
		}
	}

	// The service refuses to erase until it archives.
	modTimesBefore := modTimes(t, pattern)
	var op *skeinv1.Operation
	waitUntil(ctx, t, func(ctx context.Context) error {
		res, err := e.api.Admin().EraseUser(ctx, connect.NewRequest(&skeinv1.EraseUserRequest{UserIds: users}))
		if err == nil {
			op = res.Msg.GetOperation()
		}
		return err
	})

	refreshOperation := func(ctx context.Context) error {
		res, err := e.api.Admin().GetOperation(ctx, connect.NewRequest(&skeinv1.GetOperationRequest{OperationId: op.GetOperationId()}))
		if err == nil {
			op = res.Msg.GetOperation()
		}
		return err
	}

	// Do not pause between two looks, or a file that exists only for a moment is missed.
	for !killed && !command.OperationHasEnded(op) {
		for name, modTime := range modTimes(t, pattern) {
			if !modTime.Equal(modTimesBefore[name]) {
				killed = true
			}
		}
		if err := refreshOperation(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if command.OperationHasEnded(op) {
		killed = false
	}
	e.server.kill()

	// If the service was taking a snapshot, its claim to the snapshots bars the next process for
	// some minutes. Make the claim look old, so that it has expired.
	for name := range modTimes(t, filepath.Join(e.server.dataDir(), "snapshots", "snapshot-claims", "*")) {
		if err := os.Chtimes(name, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}

	if err := e.server.start(ctx); err != nil {
		t.Fatal(err)
	}
	err := eventually(ctx, func(ctx context.Context) error {
		if err := refreshOperation(ctx); err != nil {
			return err
		}
		if op.GetState() != skeinv1.OperationState_OPERATION_STATE_SUCCEEDED {
			return fmt.Errorf("the erasure is %v", op)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("erasure after a kill at %s: got %v, want that it succeeds", pattern, err)
	}
	return killed
}

// modTimes returns the modification times of the files that match a pattern.
func modTimes(t *testing.T, pattern string) map[string]time.Time {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]time.Time{}
	for _, name := range names {
		// The file may have been removed meanwhile.
		if info, err := os.Stat(name); err == nil {
			times[name] = info.ModTime()
		}
	}
	return times
}
