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
// replicas. The log must continue, and neither the messages of a replica, nor the archive, nor the
// stores of the process that erases may have one of the ids.
func TestErasureRemovesUsersFromReplicatedLog(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	archived := t.TempDir()
	r := startReplicas(ctx, t, "", "--archive", archived, "--archive-every", "100ms")
	info, err := r.cluster.awaitWhole(ctx)
	if err != nil || info.Config.Replicas != 3 {
		t.Fatalf("on three servers the log has %d replicas, %v", info.Config.Replicas, err)
	}

	users := []string{"somebody-to-be-erased", "7234567890123456789", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}
	at := ""
	for i := range 20 {
		for _, user := range users {
			other := fmt.Sprint("u", i)
			if at, err = r.publish(ctx, i%2, userFollowed(user, other), userFollowed(other, user), userFollowed(other, "bob")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if follows, err := r.follows(ctx, 1, "u1", users[0], at); err != nil || !follows {
		t.Fatalf("before the erasure, u1 follows the user: %v, %v", follows, err)
	}

	list := filepath.Join(t.TempDir(), "users.txt")
	if err := os.WriteFile(list, []byte(strings.Join(users, "\n")+"\nnobody\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	archives := -1 // the process that archives
	if err := eventually(ctx, func(context.Context) error {
		var all string
		for i := range r.servers {
			code, out, said := skein("replay", "erase", "--file", list, "--yes", "--server", r.servers[i].addr) //nolint:contextcheck // a command makes its own
			all += out + said
			if code == exitOK {
				archives = i
				for _, want := range []string{"3 users deleted", "user 4 of the list was not erased", "epoch 2"} {
					if !strings.Contains(out, want) {
						t.Errorf("expected %q in the report\n%s", want, out)
					}
				}
				return nil
			}
		}
		return errors.New(all)
	}); err != nil {
		t.Fatal(err)
	}

	at, err = r.publish(ctx, 0, userFollowed("u1", "after"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.servers {
		for user, want := range map[string]bool{users[0]: false, "bob": true, "after": true} {
			if follows, err := r.follows(ctx, i, "u1", user, at); err != nil || follows != want {
				t.Errorf("process %d: u1 follows %s: %v, %v, expected %v", i, user, follows, err, want)
			}
		}
	}

	if _, err := r.cluster.awaitWhole(ctx); err != nil {
		t.Fatal(err)
	}
	dirs := []string{archived, filepath.Join(r.servers[archives].dir, "data")}
	for n := range r.cluster.opts {
		dirs = append(dirs, messageDirs(t, r.cluster.opts[n].StoreDir)...)
	}
	for _, user := range users {
		for _, dir := range dirs {
			if found := conformance.FilesWith(t, dir, user); len(found) > 0 {
				t.Errorf("%s is still in %v", user, found)
			}
		}
	}
}

// messageDirs returns the directories below dir in which a NATS server keeps the messages of the log. Its Raft logs, which it compacts by its own
// rules, are elsewhere.
func messageDirs(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasSuffix(name, filepath.Join("streams", "SKEIN", "msgs")) {
			found = append(found, name)
		}
		return err
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("%s has no messages: %v", dir, err)
	}
	return found
}
