package main

import (
	"context"
	"errors"
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
		t.Fatal(tables, err)
	}

	// Flip one bit at a time. The commands that read the store must report it.
	refused := 0
	for fromEnd := 16; fromEnd <= 1<<10; fromEnd += 96 {
		flipTables(t, tables, fromEnd)
		code, _, errOut := runInProcess("inspect", dir, "--projection", "seen")
		if code == 0 { // the bit has no meaning, or is before the beginning of the tables
			flipTables(t, tables, fromEnd)
			continue
		}

		refused++
		if code != 1 || !strings.Contains(errOut, "seen") {
			t.Errorf("inspect with a flipped bit %d bytes before the end: exit code %d, %s", fromEnd, code, errOut)
		}
		checkRun(t, 1, "", "seen", "export", "rows", "seen", "--data", dir, "--out", filepath.Join(t.TempDir(), "rows"))
		checkRun(t, 1, "graph generation 1: continues", "", "serve", "--check", "--data", dir)
		flipTables(t, tables, fromEnd)
	}
	if refused == 0 {
		t.Fatal("no flipped bit was noticed")
	}

	// Damage the index, the properties and the footer at once, and start the service.
	for fromEnd := range 10 {
		flipTables(t, tables, 16+48*fromEnd)
	}
	checkRun(t, 1, "to be rebuilt from 1 envelopes", "the projection answers nothing until it is rebuilt", "serve", "--check", "--data", dir)
	api, stop = startService(t, dir, logger)
	defer stop()
	checkFollowees(t, api, "bob")

	err = eventually(t.Context(), func(ctx context.Context) error {
		res, err := api.Seen().FilterSeen(ctx, connect.NewRequest(&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{"film", "other"}}))
		if err == nil && !slices.Equal(res.Msg.GetUnseenIndexes(), []uint32{1}) {
			t.Errorf("unseen are %v, expected [1]", res.Msg.GetUnseenIndexes())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}

	status, err := getStatus(t.Context(), api)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range status.GetProjections() {
		rebuilt := p.GetName() == "seen"
		if (p.GetGeneration() > 1) != rebuilt {
			t.Errorf("%s serves from generation %d; rebuilt: %v", p.GetName(), p.GetGeneration(), rebuilt)
		}
	}
}

// flipTables flips the lowest bit of the byte this many bytes before the end of each table that is
// long enough. A second call undoes the first.
func flipTables(t *testing.T, tables []string, fromEnd int) {
	t.Helper()
	for _, table := range tables {
		content, err := os.ReadFile(table)
		if err == nil && fromEnd <= len(content) {
			content[len(content)-fromEnd] ^= 1
			err = errors.Join(err, os.WriteFile(table, content, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
