package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skein-feed/skein/projections/projectiontest/conformance"
)

// TestErasureRemovesUsersFromReplicatedLog erases several users in one pass from a log with three
// replicas, and another user while one of the three servers is down. The log must continue, and
// neither the messages of a replica, nor the archive, nor the stores of the process that erases may
// have one of the ids. The report must say that Raft logs still have them, and which server was
// down.
func TestErasureRemovesUsersFromReplicatedLog(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	defer cancel()
	archiveDir := t.TempDir()
	r := startReplicas(ctx, t, "", "--archive", archiveDir, "--archive-every", "100ms")
	info, err := r.cluster.waitUntilReplicated(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.Config.Replicas != 3 {
		t.Fatalf("on three servers the log has %d replicas, want 3", info.Config.Replicas)
	}

	// Some users have numeric ids and UUIDs, which skein may store in another form.
	users := []string{"somebody-to-be-erased", "7234567890123456789", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}
	position := ""
	for i := range 20 {
		for _, user := range users {
			other := fmt.Sprint("u", i)
			position, err = r.publishAt(ctx, i%2, userFollowed(user, other), userFollowed(other, user), userFollowed(other, "bob"))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if follows, err := r.isFollowing(ctx, 1, "u1", users[0], position); err != nil || !follows {
		t.Fatalf("before the erasure, u1 follows %s: got %v, %v, want true", users[0], follows, err)
	}

	// Erase all of them in one pass. The list also has a user who does not exist.
	list := filepath.Join(t.TempDir(), "users.txt")
	if err := os.WriteFile(list, []byte(strings.Join(users, "\n")+"\nnobody\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	// erasedBy has the process that erased each user. Only the stores of that process are checked.
	erasedBy := map[string]int{}
	archiver := r.eraseAtArchiver(ctx, t, []string{"--file", list}, "3 users deleted", "user 4 of the list was not erased", "epoch 2",
		"removed from 3 of 3 replicas", "left: each NATS server of the stream has erased messages in its Raft log")
	for _, user := range users {
		erasedBy[user] = archiver
	}

	position, err = r.publishAt(ctx, 0, userFollowed("u1", "after"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.servers {
		for user, want := range map[string]bool{users[0]: false, "bob": true, "after": true} {
			if follows, err := r.isFollowing(ctx, i, "u1", user, position); err != nil || follows != want {
				t.Errorf("process %d, u1 follows %s: got %v, %v, want %v", i, user, follows, err, want)
			}
		}
	}

	// Erase another user while a NATS server of the log is down. The report must name that server.
	lateUser := "another-to-be-erased"
	if _, err := r.publishAt(ctx, 0, userFollowed(lateUser, "u1")); err != nil {
		t.Fatal(err)
	}

	down := r.cluster.stopFollower(ctx)
	erasedBy[lateUser] = r.eraseAtArchiver(ctx, t, []string{lateUser, "--json"}, "epoch 3", "removed from 2 of 3 replicas",
		"left: NATS servers that do not run have all erased messages until they have caught up: start "+r.cluster.opts[down].ServerName)
	r.cluster.startServer(down)

	if _, err := r.cluster.waitUntilReplicated(ctx); err != nil {
		t.Fatal(err)
	}

	// Search the files of all replicas, of the archive, and of the process that erased each user.
	// The server that was down may still be catching up, so wait until the files are clean.
	dirs := []string{archiveDir}
	for n := range r.cluster.opts {
		dirs = append(dirs, findMessageDirs(t, r.cluster.opts[n].StoreDir)...)
	}
	waitUntil(ctx, t, func(context.Context) error {
		var errs []error
		for user, archiver := range erasedBy {
			for _, dir := range append(dirs, r.servers[archiver].dataDir()) {
				if found := conformance.FilesWith(t, dir, user); len(found) > 0 {
					errs = append(errs, fmt.Errorf("%s is still in %v", user, found))
				}
			}
		}
		return errors.Join(errs...)
	})
}

// eraseAtArchiver erases users at the process that archives the log, because only that process may,
// and returns its number. Every text must be in the report.
func (r *replicas) eraseAtArchiver(ctx context.Context, t *testing.T, users []string, wantTexts ...string) (archiver int) {
	t.Helper()
	report := ""
	waitUntil(ctx, t, func(context.Context) error {
		// Try both processes. The one that does not archive refuses.
		var refusals strings.Builder
		for i := range r.servers {
			args := append([]string{"replay", "erase", "--yes", "--server", r.servers[i].addr}, users...)
			code, out, errOut := runInProcess(args...) //nolint:contextcheck // a command makes its own
			if code == exitOK {
				archiver = i
				report = out
				return nil
			}
			refusals.WriteString(out + errOut)
		}
		return errors.New(refusals.String())
	})

	for _, want := range wantTexts {
		if !strings.Contains(report, want) {
			t.Errorf("the report of the erasure does not contain %q:\n%s", want, report)
		}
	}
	return archiver
}

// findMessageDirs returns the directories below dir in which a NATS server stores the messages of
// the log. Its Raft logs, which the server compacts by its own rules, are elsewhere.
func findMessageDirs(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasSuffix(name, filepath.Join("streams", "SKEIN", "msgs")) {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("%s has no directory with messages of the log, want at least one", dir)
	}
	return found
}
