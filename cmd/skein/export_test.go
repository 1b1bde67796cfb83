package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/skein-feed/skein/replay/export"
)

// TestExportReadsSnapshotOfRunningService exports a snapshot while the service has already folded
// more, and leaves no other files behind.
func TestExportReadsSnapshotOfRunningService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := t.TempDir()
	out := t.TempDir()
	scratch := t.TempDir()
	logger := slog.New(slog.DiscardHandler)

	// The snapshot has the first follow, the service the second one too.
	api, stop := startService(t, dir, logger)
	position := mustPublish(t, api, userFollowed("ann", "bob"))
	stop()
	takeSnapshot(t, dir, target, "one")
	api, stop = startService(t, dir, logger)
	defer stop()
	mustPublish(t, api, userFollowed("ann", "cid"))

	file := filepath.Join(out, "graph.parquet")
	code, _, errOut := runInProcess("export", "rows", "graph", "--target", target, "--scratch", scratch, "--format", "parquet", "--out", file)
	if code != exitOK || !strings.Contains(errOut, "at position "+position) {
		t.Fatalf("export: got exit code %d and %s, want %d and the position %s", code, errOut, exitOK, position)
	}

	rows, err := parquet.ReadFile[export.Row](file)
	if err != nil {
		t.Fatal(err)
	}
	var followees []string
	for _, row := range rows {
		if row.Position != position {
			t.Errorf("got a row at position %s, want %s: %+v", row.Position, position, row)
		}
		if row.Kind == "edge" && row.ID == "ann" {
			followees = append(followees, row.Key["B"])
		}
	}
	if want := []string{"bob"}; !slices.Equal(followees, want) {
		t.Errorf("edges of ann: got the followees %v, want %v", followees, want)
	}

	// A service without a target takes no snapshot, and its export leaves no file.
	code, _, errOut = runInProcess("export", "rows", "graph", "--server", api.URL, "--target", target, "--take",
		"--out", filepath.Join(out, "none"))
	if code != exitFailed || !strings.Contains(errOut, "--take: ") {
		t.Errorf("export with --take: got exit code %d and %s, want %d and an error about --take", code, errOut, exitFailed)
	}
	for dir, want := range map[string]int{out: 1, scratch: 0} {
		if files, err := os.ReadDir(dir); err != nil || len(files) != want {
			t.Errorf("files of %s: got %v, %v, want %d", dir, files, err, want)
		}
	}
}
