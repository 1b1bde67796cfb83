package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/service"
)

// goldenDir has a directory per released version, with a small data directory that this version has
// written, and the answers that it gave to questions. `task golden:data VERSION=v1.2` adds one.
// Existing ones are never changed.
const goldenDir = "testdata/golden"

// keepDataFlags keep a service from archiving, trimming or auditing data of an earlier version.
var keepDataFlags = []string{"--archive-every", "24h", "--log-retention=-1h", "--audit-share", "0"}

// TestMakeGoldenData makes the data of a version with this program. Only `task golden:data` runs
// it; otherwise it does nothing.
func TestMakeGoldenData(t *testing.T) {
	release := os.Getenv("SKEIN_GOLDEN_MAKE")
	if release == "" {
		return // TestDataOfEveryReleaseIsServed checks what this test has made
	}
	releaseDir := filepath.Join(goldenDir, release)
	if _, err := os.Stat(releaseDir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s: got %v, want that it does not exist, because the data of a release is never changed", releaseDir, err)
	}

	dir := t.TempDir()
	s := &serverProcess{t: t, dir: dir, flags: []string{
		"--archive-every", "1s", "--snapshots", filepath.Join(dir, "data", "snapshots"), "--snapshot-every", "24h",
	}}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}

	publishGoldenEvents(t, s, "skein")
	mustSkein(t, s, "skein", "", "snapshot", "--name", "golden")
	recorded := recordAnswers(t, s, "skein")
	waitUntilArchived(t, s, "skein")
	if err := s.stopGracefully(); err != nil {
		t.Fatal(err)
	}

	if err := os.MkdirAll(releaseDir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(releaseDir, "answers.txt"), []byte(recorded), 0o600); err != nil {
		t.Fatal(err)
	}
	packDir(t, filepath.Join(dir, "data"), filepath.Join(releaseDir, "data.tar.gz"))
}

// TestDataOfEveryReleaseIsServed starts this program on the data of every released version. It must
// answer the same questions, page tokens and positions as that version did, from its stores, from
// stores that are restored from its snapshot, and from stores that are rebuilt from its log. Verify
// must find that all of these are the fold of that log.
func TestDataOfEveryReleaseIsServed(t *testing.T) {
	t.Parallel()
	releases, err := os.ReadDir(goldenDir)
	if err != nil || len(releases) == 0 {
		t.Fatalf("releases in %s: got %v, %v, want some", goldenDir, releases, err)
	}

	for _, release := range releases {
		for _, source := range []goldenSource{
			{name: "its stores", prepare: func(*testing.T, string) {}},
			{name: "its snapshot", prepare: restoreGoldenSnapshot},
			{name: "its log", prepare: removeStores},
			{name: "its archive", prepare: restoreGoldenLog, hasOtherEpoch: true},
		} {
			t.Run(release.Name()+" "+source.name, func(t *testing.T) {
				t.Parallel()
				checkGoldenData(t, filepath.Join(goldenDir, release.Name()), source)
			})
		}
	}
}

// goldenSource is the part of the data of a release from which a service starts.
type goldenSource struct {
	name string
	// prepare removes or restores the other parts of a data directory.
	prepare func(t *testing.T, data string)
	// hasOtherEpoch is set if the log continues in another epoch, which positions contain.
	hasOtherEpoch bool
}

// restoreGoldenSnapshot replaces the stores of a data directory with those of its snapshot.
func restoreGoldenSnapshot(t *testing.T, data string) {
	t.Helper()
	removeStores(t, data)
	mustSkein(t, &serverProcess{}, "skein", "", "restore", "--target", filepath.Join(data, "snapshots"), "--data", data)
}

// restoreGoldenLog replaces the log of a data directory with the one of its archive.
func restoreGoldenLog(t *testing.T, data string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(data, service.LogDir)); err != nil {
		t.Fatal(err)
	}
	mustSkein(t, &serverProcess{}, "skein", "", "replay", "archive", "restore", "--data", data)
}

// checkGoldenData starts this program on the data of a release, and compares its answers with the
// recorded ones.
func checkGoldenData(t *testing.T, releaseDir string, source goldenSource) {
	t.Helper()
	recorded, err := os.ReadFile(filepath.Join(releaseDir, "answers.txt"))
	if err != nil {
		t.Fatal(err)
	}
	s := &serverProcess{t: t, dir: t.TempDir(), flags: append([]string{"--auto-rebuild"}, keepDataFlags...)}
	data := s.dataDir()
	unpackTo(t, filepath.Join(releaseDir, "data.tar.gz"), data)
	source.prepare(t, data)

	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitUntilRebuilt(t, s)
	checkAnswers(t, s, "skein", string(recorded), source.hasOtherEpoch, nil)
	mustSkein(t, s, "skein", "", "replay", "verify", "--share", "1")

	// The service takes new events, and still has them after a restart.
	position := mustSkein(t, s, "skein", `{"userFollowed":{"userId":"u1","targetUserId":"later"}}`, "publish", "--visible")
	if err := s.stopGracefully(); err != nil {
		t.Fatal(err)
	}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.stopGracefully(); err != nil {
			t.Error(err)
		}
	}()
	got := mustSkein(t, s, "skein", "", "query", "check", "u1", "later", "--at-least", strings.TrimSpace(position))
	if !strings.Contains(got, "explicit") {
		t.Errorf("query check after a restart: got %s, want an explicit follow", got)
	}
}

// removeStores removes all stores of a data directory.
func removeStores(t *testing.T, data string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(data, service.StoresDir)); err != nil {
		t.Fatal(err)
	}
}

// packDir writes the files of a directory to an archive, without their times. Compression shrinks
// the holes of sparse files to almost nothing.
func packDir(t *testing.T, dir, file string) {
	t.Helper()
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(compressed)

	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir || entry.Name() == "LOCK" {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return w.WriteHeader(&tar.Header{Name: name + "/", Mode: 0o750, Typeflag: tar.TypeDir, ModTime: time.Unix(0, 0)})
		}

		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o640, Size: int64(len(content)), ModTime: time.Unix(0, 0)})
		if err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})

	// Each of these writes what it still holds to the next.
	if err := errors.Join(err, w.Close(), compressed.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
}

// unpackTo unpacks an archive into a directory.
func unpackTo(t *testing.T, file, dir string) {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	decompressed, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}

	r := tar.NewReader(decompressed)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || !filepath.IsLocal(header.Name) {
			t.Fatalf("%s: got the entry %v, %v, want a local path", file, header, err)
		}

		path := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o750); err != nil {
				t.Fatal(err)
			}
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// waitUntilRebuilt waits until every projection of a service is ready. Until its store is rebuilt,
// a projection of an earlier version answers from its last position, or not at all.
func waitUntilRebuilt(t *testing.T, s *serverProcess) {
	t.Helper()
	waitUntil(t.Context(), t, func(context.Context) error {
		code, out, errOut := runInProcess("replay", "status", "--server", s.addr) //nolint:contextcheck // a command line has no context
		projections := strings.Count(out, ", generation ")
		ready := strings.Count(out, ": ready\n")
		if code != exitOK || projections != ready {
			return fmt.Errorf("replay status: got exit code %d and\n%s%s\nwant that all projections are ready", code, out, errOut)
		}
		return nil
	})
}
