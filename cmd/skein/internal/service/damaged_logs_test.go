package service

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDamagedLogsAreFoundBelowAnyDirectory(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "data [1] *")
	if dirs, err := DamagedLogs(dataDir); len(dirs) > 0 || err != nil {
		t.Errorf("before there is a directory: got %v and error %v, want none", dirs, err)
	}

	newer := filepath.Join(dataDir, DamagedLogPrefix+"20260202T000000.000000Z")
	older := filepath.Join(dataDir, DamagedLogPrefix+"20260101T000000.000000Z")
	for _, dir := range []string{newer, older, filepath.Join(dataDir, LogDir)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	dirs, err := DamagedLogs(dataDir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{older, newer}, dirs); diff != "" {
		t.Errorf("damaged logs (-want +got):\n%s", diff)
	}
}
