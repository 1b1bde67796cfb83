package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestStoppingProcessLeavesReplacedDirectoryAlone demands that a process that is still stopping
// ends at once when its data directory is removed and another process has created the directory
// again. Before, it continued and created files among those of the other process.
func TestStoppingProcessLeavesReplacedDirectoryAlone(t *testing.T) {
	t.Parallel()
	stopping := startServer(t.Context(), t, "--drain-delay", "1h")
	if err := stopping.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	// Rename the directory, because removing its files one by one would race with the process. A
	// link gives the next process the same path.
	data := stopping.dataDir()
	if err := os.Rename(data, data+"-removed"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	next := &serverProcess{t: t, dir: t.TempDir()}
	if err := os.Symlink(data, next.dataDir()); err != nil {
		t.Fatal(err)
	}
	if err := next.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer next.kill()

	// The drain delay of an hour is not over, so the process ends only because it has noticed.
	_ = stopping.cmd.Wait()
	if code := stopping.cmd.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("stopping process: got exit code %d, want %d", code, exitFailed)
	}
	checkLogContains(t, stopping, "the data directory was removed or replaced while this process had it open")
	mustSkein(t, next, "skein", `{"userFollowed":{"userId":"ann","targetUserId":"bob"}}`+"\n", "publish", "--visible")

	// A third process does not get the directory either.
	third := &serverProcess{t: t, dir: t.TempDir()}
	if err := os.Symlink(data, third.dataDir()); err != nil {
		t.Fatal(err)
	}
	if err := third.launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = third.cmd.Wait()
	checkLogContains(t, third, "is open in another process: stop it, or choose another directory")
}

// checkLogContains checks that a process has logged a text.
func checkLogContains(t *testing.T, s *serverProcess, want string) {
	t.Helper()
	text, err := s.readLogFile()
	if err != nil || !strings.Contains(text, want) {
		t.Errorf("log of the process: got %v and\n%s\nwant a line with %q", err, text, want)
	}
}
