package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/skein-feed/skein/replay/export"
)

// TestExportReadsSnapshotOfRunningService exports a snapshot while the service has already folded
// more, and leaves no other files behind.
func TestExportReadsSnapshotOfRunningService(t *testing.T) {
	t.Parallel()
	dir, target, out, scratch := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	logger := slog.New(slog.DiscardHandler)
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
		t.Fatalf("exit code %d, %s", code, errOut)
	}

	rows, err := parquet.ReadFile[export.Row](file)
	if err != nil {
		t.Fatal(err)
	}

	edges := 0
	for _, r := range rows {
		if r.Position != position {
			t.Errorf("got a row at position %s, expected %s: %+v", r.Position, position, r)
		}
		if r.Kind == "edge" && r.ID == "ann" {
			edges++
			if r.Key["B"] != "bob" {
				t.Errorf("got an edge to %v, expected bob", r.Key["B"])
			}
		}
	}
	if edges != 1 {
		t.Errorf("got %d edges of ann, expected 1", edges)
	}

	// A service without a target takes no snapshot, and its export leaves no file.
	code, _, errOut = runInProcess("export", "rows", "graph", "--server", api.URL, "--target", target, "--take",
		"--out", filepath.Join(out, "none"))
	if code != exitFailed || !strings.Contains(errOut, "--take: ") {
		t.Errorf("exit code %d, %s", code, errOut)
	}

	for dir, want := range map[string]int{out: 1, scratch: 0} {
		if left, err := os.ReadDir(dir); err != nil || len(left) != want {
			t.Errorf("%s holds %v, %v", dir, left, err)
		}
	}
}
