package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/replaycmd"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// archiveLog archives the log of a service that is not running.
func archiveLog(t *testing.T, dir string) {
	t.Helper()
	archiveFrom(t, dir, eventlog.Config{Dir: filepath.Join(dir, service.LogDir)})
}

// archiveFrom archives a log into the archive of a data directory.
func archiveFrom(t *testing.T, dir string, cfg eventlog.Config) {
	t.Helper()
	log, err := eventlog.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()

	archiveBucket, err := bucket.NewDir(filepath.Join(dir, flags.ArchiveDir))
	if err != nil {
		t.Fatal(err)
	}
	logArchive, err := archive.Open(t.Context(), archiveBucket, log.ID())
	if err != nil {
		t.Fatal(err)
	}
	log.SetArchive(logArchive)

	writer := logArchive.Writer()
	if err := writer.Add(readLog(t.Context(), t, log)...); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// archiveTwoOfThreeFollows returns a data directory with a log of three follows of ann, of which
// two are archived.
func archiveTwoOfThreeFollows(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	logger := slog.New(slog.DiscardHandler)

	api, stop := startService(t, dir, logger)
	mustPublish(t, api, userFollowed("ann", "bob"))
	mustPublish(t, api, userFollowed("ann", "cid"))
	stop()
	archiveLog(t, dir)

	api, stop = startService(t, dir, logger)
	mustPublish(t, api, userFollowed("ann", "dan"))
	stop()
	return dir
}

// checkFollowees checks whom ann follows, newest first.
func checkFollowees(t *testing.T, api *command.Client, want ...string) {
	t.Helper()
	res, err := api.Graph().ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{UserId: "ann"}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range res.Msg.GetEntries() {
		got = append(got, f.GetUserId())
	}
	if !slices.Equal(got, want) {
		t.Errorf("ListFollowing of ann: got %v, want %v", got, want)
	}
}

// checkRun runs a command, and checks its exit code and parts of its output and its errors. It
// returns the output.
func checkRun(t *testing.T, wantCode int, wantOut, wantErr string, args ...string) string {
	t.Helper()
	code, out, errOut := runInProcess(args...)
	if code != wantCode {
		t.Errorf("skein %v: exit code %d, want %d\n%s%s", args, code, wantCode, out, errOut)
	}
	if !strings.Contains(out, wantOut) {
		t.Errorf("skein %v: the output does not contain %q:\n%s", args, wantOut, out)
	}
	if !strings.Contains(errOut, wantErr) {
		t.Errorf("skein %v: the errors do not contain %q:\n%s", args, wantErr, errOut)
	}
	return out
}

// mustFindOneFile returns the only file that matches a pattern.
func mustFindOneFile(t *testing.T, pattern ...string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(pattern...))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 {
		t.Fatalf("got the files %v, want one that matches %s", found, filepath.Join(pattern...))
	}
	return found[0]
}

// mustFindMovedLogs returns the directories to which restores have moved a log of a data directory.
// There must be want of them.
func mustFindMovedLogs(t *testing.T, dir string, want int) []string {
	t.Helper()
	found, err := service.DamagedLogs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != want {
		t.Fatalf("restores have moved the log to %v, want %d directories", found, want)
	}
	return found
}

// mustFlipMiddleBit changes one bit in the middle of a file, and returns what was in the file
// before.
func mustFlipMiddleBit(t *testing.T, path string) (before []byte) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(before)
	flipped[len(flipped)/2] ^= 1
	if err := os.WriteFile(path, flipped, 0o600); err != nil {
		t.Fatal(err)
	}
	return before
}

// TestArchiveCheckNamesDamagedFiles reads a complete archive, and demands that damage is reported
// with the name of the file.
func TestArchiveCheckNamesDamagedFiles(t *testing.T) {
	t.Parallel()
	dir := archiveTwoOfThreeFollows(t)
	missing := filepath.Join(dir, "none")

	// The archive is complete, and has the first two events.
	checkRun(t, exitOK, "up to      sequence 2, 2", "", "replay", "archive", "status", "--data", dir)
	out := checkRun(t, exitOK, "", "", "replay", "archive", "status", "--archive", filepath.Join(dir, flags.ArchiveDir), "--json")
	var status replaycmd.ArchiveStatus
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatal(err)
	}
	if status.Seq != 2 || status.Epoch != 1 || status.Envelopes != 2 {
		t.Errorf("status: got %+v, want 2 envelopes up to sequence 2 of epoch 1", status)
	}
	if len(status.Classes) != 2 || status.Classes[0].Events != 2 || status.Bytes == 0 {
		t.Errorf("status: got %+v, want some bytes and two classes, the first with 2 events", status)
	}
	checkRun(t, exitOK, "", "is whole", "replay", "archive", "check", "--data", dir)

	// Without an archive, the commands fail and make no directory.
	checkRun(t, exitFailed, "", "there is no archive", "replay", "archive", "check", "--data", missing)
	checkRun(t, exitFailed, "", "there is no archive", "replay", "archive", "status", "--archive", missing)
	checkRun(t, exitUsage, "", "where the archive is", "replay", "archive", "check", "--archive", "off")
	if _, err := os.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of the directory without an archive: got %v, want %v", err, fs.ErrNotExist)
	}

	// Damage the only segment of facts.
	segment := mustFindOneFile(t, dir, flags.ArchiveDir, "archive", "facts-*")
	mustFlipMiddleBit(t, segment)

	name := filepath.Base(segment)
	checkRun(t, exitFailed, name, "", "replay", "archive", "check", "--data", dir)
	out = checkRun(t, exitFailed, name, "", "replay", "archive", "check", "--data", dir, "--json")
	var check replaycmd.ArchiveCheck
	if err := json.Unmarshal([]byte(out), &check); err != nil {
		t.Fatal(err)
	}
	if len(check.Damaged) != 1 {
		t.Errorf("check: got the damaged files %v, want only %s", check.Damaged, name)
	}
}

// TestArchiveRestoreRecoversLog restores a log that is damaged, then one that is lost, and then one
// that is lost again.
func TestArchiveRestoreRecoversLog(t *testing.T) {
	t.Parallel()
	dir := archiveTwoOfThreeFollows(t)
	logger := slog.New(slog.DiscardHandler)
	restore := []string{"replay", "archive", "restore", "--data", dir}

	// A log that a service uses, or that is intact, is not restored.
	api, stop := startService(t, dir, logger)
	checkRun(t, exitFailed, "", "in use", restore...)
	checkFollowees(t, api, "dan", "cid", "bob")
	stop()
	checkRun(t, exitOK, "", "nothing of the log", restore...)

	// Cut off the end of the only file of messages.
	block := mustFindOneFile(t, dir, service.LogDir, "jetstream", "*", "streams", "*", "msgs", "*.blk")
	data, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(block, data[:len(data)-10], 0o600); err != nil {
		t.Fatal(err)
	}

	out := checkRun(t, exitOK, "graph is at sequence 3 and must be built again", "is damaged", restore...)
	const continued = "continues in epoch 3 after sequence 2 "
	if !strings.Contains(out, continued) {
		t.Errorf("restore of a damaged log: the output does not contain %q:\n%s", continued, out)
	}
	checkRun(t, exitOK, "", "nothing of the log", restore...)
	mustFindMovedLogs(t, dir, 1)

	// Lose the log. A service that does not find its log leaves an empty directory behind, as does
	// an interrupted restore.
	logDir := filepath.Join(dir, service.LogDir)
	if err := os.RemoveAll(logDir); err != nil {
		t.Fatal(err)
	}
	if _, err := eventlog.Open(t.Context(), eventlog.Config{Dir: logDir, Existing: true}); err == nil {
		t.Fatal("Open found a log, want an error because the log is lost")
	}
	if err := os.RemoveAll(filepath.Join(dir, service.StoresDir)); err != nil {
		t.Fatal(err)
	}

	out = checkRun(t, exitOK, `"epoch":5`, "", append(restore, "--json")...)
	var report replaycmd.RestoredLog
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if report.Seq != 2 || len(report.Stores) != 0 || report.NotSalvagedBecause != "" {
		t.Errorf("restore of a lost log: got %+v, want sequence 2, no stores, and no reason why nothing was salvaged", report)
	}
	// There was no log to move.
	mustFindMovedLogs(t, dir, 1)

	// Restore a log that is not damaged, then some that cannot be restored.
	checkRun(t, exitOK, "epoch 7", "", append(restore, "--force")...)
	mustFindMovedLogs(t, dir, 2)
	checkRun(t, exitFailed, "", "there is no archive", "replay", "archive", "restore", "--data", t.TempDir())
	checkRun(t, exitUsage, "", "where the archive is", append(restore, "--nats", "nats://127.0.0.1:1")...)

	// The archive of another log is refused, and the log stays where it is.
	other := t.TempDir()
	_, stop = startService(t, other, logger)
	stop()
	checkRun(t, exitFailed, "", "another log",
		"replay", "archive", "restore", "--data", other, "--archive", filepath.Join(dir, flags.ArchiveDir))
	mustFindMovedLogs(t, other, 0)
}

// TestArchiveRestoreRefusesDamagedArchive demands that a damaged log stays where it is while the
// archive is damaged, too, and is restored once the archive is complete.
func TestArchiveRestoreRefusesDamagedArchive(t *testing.T) {
	t.Parallel()
	dir := archiveTwoOfThreeFollows(t)
	segment := mustFindOneFile(t, dir, flags.ArchiveDir, "archive", "facts-*")
	intact := mustFlipMiddleBit(t, segment)

	restore := []string{"replay", "archive", "restore", "--force", "--data", dir}
	checkRun(t, exitFailed, "", filepath.Base(segment), restore...)
	checkRun(t, exitOK, "epoch 1", "", "replay", "archive", "status", "--data", dir)
	mustFindMovedLogs(t, dir, 0)

	// Bytes after the end of a segment are reported, but are not needed.
	if err := os.WriteFile(segment, append(intact, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	checkRun(t, exitFailed, "bytes follow its end", "", "replay", "archive", "check", "--data", dir)
	checkRun(t, exitOK, "continues in epoch 3 after sequence 3 ", "moved it", restore...)
}

// TestArchiveRestoreContinuesAfterInterruption interrupts the command after it has moved the log
// away. The next restore must find the log there, and take from it what is not archived.
func TestArchiveRestoreContinuesAfterInterruption(t *testing.T) {
	t.Parallel()
	dir := archiveTwoOfThreeFollows(t)
	moved := filepath.Join(dir, service.DamagedLogPrefix+"20260101T000000.000000Z")
	if err := os.Rename(filepath.Join(dir, service.LogDir), moved); err != nil {
		t.Fatal(err)
	}
	// A later directory, which is empty, must not be taken for the log.
	if err := os.Mkdir(filepath.Join(dir, service.DamagedLogPrefix+"20260202T000000.000000Z"), 0o700); err != nil {
		t.Fatal(err)
	}

	out := checkRun(t, exitOK, "gave 1 envelope with 1 event", "", "replay", "archive", "restore", "--data", dir)
	const continued = "graph is at sequence 3 and continues.\n"
	if !strings.Contains(out, continued) {
		t.Errorf("restore after an interruption: the output does not contain %q:\n%s", continued, out)
	}
}

// TestServeRefusesEarlierLog demands that a log that ends before its archive, or is of an earlier
// epoch, takes no events.
func TestServeRefusesEarlierLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	logger := slog.New(slog.DiscardHandler)

	// Copy the data after the first event, and archive the log with the second one.
	api, stop := startService(t, dir, logger)
	mustPublish(t, api, userFollowed("ann", "bob"))
	stop()
	earlier := t.TempDir()
	if err := os.CopyFS(earlier, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	api, stop = startService(t, dir, logger)
	mustPublish(t, api, userFollowed("ann", "cid"))
	stop()
	archiveLog(t, dir)

	serve := []string{"serve", "--listen", "127.0.0.1:0", "--archive", filepath.Join(dir, flags.ArchiveDir), "--data"}
	checkRun(t, exitFailed, "", "Restore it with `skein replay archive restore`", append(serve, earlier)...)

	// Put the log of the earlier epoch back after the restore.
	checkRun(t, exitOK, "", "moved it", "replay", "archive", "restore", "--force", "--data", dir)
	moved := mustFindMovedLogs(t, dir, 1)[0]
	logDir := filepath.Join(dir, service.LogDir)
	if err := os.RemoveAll(logDir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(moved, logDir); err != nil {
		t.Fatal(err)
	}
	checkRun(t, exitFailed, "", "does not continue where its archive ends", append(serve, dir)...)
}

// TestArchiveRestoreRebuildsEventIDs demands that `check` names a damaged file of event ids, and
// that `restore` rebuilds the file without a new epoch.
func TestArchiveRestoreRebuildsEventIDs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	api, stop := startService(t, dir, slog.New(slog.DiscardHandler))
	followWithID := userFollowed("ann", "bob")
	followWithID.EventId = "once"
	mustPublish(t, api, followWithID)
	mustPublish(t, api, userFollowed("ann", "cid"))
	stop()
	archiveLog(t, dir)

	// Damage the file of event ids.
	idFile := mustFindOneFile(t, dir, flags.ArchiveDir, "archive", "recent-*")
	if err := os.WriteFile(idFile, []byte("harmed"), 0o600); err != nil {
		t.Fatal(err)
	}

	checkRun(t, exitFailed, filepath.Base(idFile), "", "replay", "archive", "check", "--data", dir)
	restore := []string{"replay", "archive", "restore", "--data", dir}
	checkRun(t, exitOK, "nothing is taken twice", "nothing of the log is lost; damaged files of event ids", restore...)
	checkRun(t, exitOK, "", "is whole", "replay", "archive", "check", "--data", dir)
	checkRun(t, exitOK, "up to      sequence 2, 2", "", "replay", "archive", "status", "--data", dir)
	checkRun(t, exitOK, "", "nothing is restored", restore...)

	// Lose the log as well. Event ids of its last minutes may then be taken twice, which the report
	// says.
	if err := os.RemoveAll(filepath.Join(dir, service.LogDir)); err != nil {
		t.Fatal(err)
	}
	idFile = mustFindOneFile(t, dir, flags.ArchiveDir, "archive", "recent-*")
	if err := os.Remove(idFile); err != nil {
		t.Fatal(err)
	}

	out := checkRun(t, exitOK, `"may_be_taken_twice":true`, "", append(restore, "--json")...)
	var report replaycmd.RestoredLog
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if report.Seq != 2 {
		t.Errorf("restore without event ids: got sequence %d, want 2", report.Seq)
	}
	if ids := report.EventIDs; ids == nil || ids.From >= ids.To {
		t.Errorf("restore without event ids: got the range %+v, want one that is not empty", ids)
	}
	checkRun(t, exitOK, "", "is whole", "replay", "archive", "check", "--data", dir)
}
