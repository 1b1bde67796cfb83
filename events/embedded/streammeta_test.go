package embedded

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// updateStream changes the configuration of the stream.
func updateStream(t *testing.T, s *Server, description string) {
	t.Helper()
	nc, js := connectClient(t, s)
	defer nc.Close()
	config := jetstream.StreamConfig{Name: "test", Subjects: []string{"test"}, Description: description}
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// streamDescription returns the description in the configuration of the stream, and the number of
// its messages. ok is false if the server has no such stream.
func streamDescription(t *testing.T, s *Server) (description string, messages uint64, ok bool) {
	t.Helper()
	nc, js := connectClient(t, s)
	defer nc.Close()
	stream, err := js.Stream(t.Context(), "test")
	if err != nil {
		return "", 0, false
	}
	info := stream.CachedInfo()
	return info.Config.Description, info.State.Msgs, true
}

// TestInterruptedUpdateOfStreamIsCompleted puts the files of the stream's configuration into the
// states in which a kill may leave them. The stream must not be missing after a restart. A
// configuration that was damaged otherwise is still refused.
func TestInterruptedUpdateOfStreamIsCompleted(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	for name, test := range map[string]struct {
		// change changes the files after the update to "new". oldSum is the checksum before it.
		change func(t *testing.T, metaPath, sumPath string, oldSum []byte)
		wantOK bool
	}{
		"update": {func(t *testing.T, metaPath, sumPath string, oldSum []byte) {
			t.Helper()
			mustWriteAt(t, sumPath, oldSum, modTime(t, metaPath).Add(-time.Second))
		}, true},
		"creation": {func(t *testing.T, _, sumPath string, _ []byte) {
			t.Helper()
			if err := os.Remove(sumPath); err != nil {
				t.Fatal(err)
			}
		}, true},
		"damaged": {func(t *testing.T, metaPath, _ string, _ []byte) {
			t.Helper()
			config, err := os.ReadFile(metaPath)
			if err != nil {
				t.Fatal(err)
			}
			mustWriteAt(t, metaPath, bytes.Replace(config, []byte("new"), []byte("nev"), 1), modTime(t, metaPath))
		}, false},
		"damaged and newer": {func(t *testing.T, metaPath, _ string, _ []byte) {
			t.Helper()
			mustWriteAt(t, metaPath, []byte(`{"name":"te`), time.Now().Add(time.Second))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustStart(t, dir, logger)
			publishAndReadMessages(t, s, "one", "two")
			paths, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "test", streamMetaFile))
			if err != nil || len(paths) != 1 {
				t.Fatalf("files of configurations: got %v and error %v, want one", paths, err)
			}
			sumPath := filepath.Join(filepath.Dir(paths[0]), streamSumFile)
			oldSum, err := os.ReadFile(sumPath)
			if err != nil {
				t.Fatal(err)
			}
			updateStream(t, s, "new")
			mustStop(t, s)

			test.change(t, paths[0], sumPath, oldSum)

			s = mustStart(t, dir, logger)
			description, messages, ok := streamDescription(t, s)
			if ok != test.wantOK {
				t.Fatalf("the server has the stream: got %v, want %v", ok, test.wantOK)
			}
			if ok && (description != "new" || messages != 2) {
				t.Errorf("got description %q and %d messages, want \"new\" and 2", description, messages)
			}
		})
	}
}

// modTime returns when a file was last written.
func modTime(t *testing.T, path string) time.Time {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// mustWriteAt writes a file, as if it had been written at a time.
func mustWriteAt(t *testing.T, path string, content []byte, at time.Time) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// TestStreamFilesAreFoundInAnyDirectory checks that the path of the data directory may have
// characters that have a meaning in patterns.
func TestStreamFilesAreFoundInAnyDirectory(t *testing.T) {
	for _, name := range []string{"log[1]", "log[", "log*"} {
		dir := filepath.Join(t.TempDir(), name)
		s := mustStart(t, dir, slog.New(slog.DiscardHandler))
		publishAndReadMessages(t, s, "one")
		mustStop(t, s)

		paths, err := findStreamFiles(dir, "test", streamMetaFile)
		if err != nil || len(paths) != 1 {
			t.Errorf("files of configurations in %s: got %v and error %v, want one", dir, paths, err)
			continue
		}
		if _, err := os.Stat(paths[0]); err != nil {
			t.Error(err)
		}
	}
}
