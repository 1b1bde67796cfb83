package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/service"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestDamagedStoreIsRebuiltWhileOthersAnswer flips one bit at a time near the end of the tables of
// a store, where their indexes are. The commands that read the store must report the damage in an
// error. A service must start, and rebuild the store while the others answer.
func TestDamagedStoreIsRebuiltWhileOthersAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	logger := slog.New(slog.DiscardHandler)
	api, stop := startService(t, dir, logger)
	mustPublish(t, api, userFollowed("ann", "bob"), played("ann", "film"))
	stop()
	tables, err := filepath.Glob(filepath.Join(dir, service.StoresDir, "seen", "000001", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables of the seen store: got %v, %v, want some", tables, err)
	}

	// Flip one bit at a time. The commands that read the store must report it.
	reported := 0
	for fromEnd := 16; fromEnd <= 1<<10; fromEnd += 96 {
		flipTables(t, tables, fromEnd)
		code, _, errOut := runInProcess("inspect", dir, "--projection", "seen")
		// Some bits have no meaning, or are before the beginning of the tables.
		if code != exitOK {
			reported++
			if code != exitFailed || !strings.Contains(errOut, "seen") {
				t.Errorf("inspect with a flipped bit %d bytes before the end: got exit code %d and %s, want %d and the name of the store",
					fromEnd, code, errOut, exitFailed)
			}
			checkRun(t, exitFailed, "", "seen", "export", "rows", "seen", "--data", dir, "--out", filepath.Join(t.TempDir(), "rows"))
			checkRun(t, exitFailed, "graph generation 1: continues", "", "serve", "--check", "--data", dir)
		}
		flipTables(t, tables, fromEnd)
	}
	if reported == 0 {
		t.Fatal("got no report of a flipped bit, want at least one")
	}

	// Damage the index, the properties and the footer at once, and start the service.
	for i := range 10 {
		flipTables(t, tables, 16+48*i)
	}
	checkRun(t, exitFailed, "to be rebuilt from 1 envelopes", "the projection answers nothing until it is rebuilt", "serve", "--check", "--data", dir)
	api, stop = startService(t, dir, logger)
	defer stop()
	checkFollowees(t, api, "bob")

	// The seen store answers when it is rebuilt.
	var unseen []uint32
	waitUntil(t.Context(), t, func(ctx context.Context) error {
		res, err := api.Seen().FilterSeen(ctx, connect.NewRequest(&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{"film", "other"}}))
		if err != nil {
			return err
		}
		unseen = res.Msg.GetUnseenIndexes()
		return nil
	})
	if want := []uint32{1}; !slices.Equal(unseen, want) {
		t.Errorf("FilterSeen: got the unseen indexes %v, want %v", unseen, want)
	}

	status, err := getStatus(t.Context(), api)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range status.GetProjections() {
		isRebuilt := p.GetGeneration() > 1
		if want := p.GetName() == "seen"; isRebuilt != want {
			t.Errorf("%s serves from generation %d: got rebuilt %t, want %t", p.GetName(), p.GetGeneration(), isRebuilt, want)
		}
	}
}

// flipTables flips the lowest bit of the byte this many bytes before the end of each table that is
// long enough. A second call undoes the first.
func flipTables(t *testing.T, tables []string, fromEnd int) {
	t.Helper()
	for _, table := range tables {
		content, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		if fromEnd > len(content) {
			continue
		}
		content[len(content)-fromEnd] ^= 1
		if err := os.WriteFile(table, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
