package main

import (
	"encoding/json"
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
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("ann follows %v, not %v", got, want)
	}
}

// checkRun runs a command, and checks its exit code and parts of its output and its errors. It
// returns the output.
func checkRun(t *testing.T, wantCode int, wantOut, wantErr string, args ...string) string {
	t.Helper()
	gotCode, gotOut, gotErr := runInProcess(args...)
	if gotCode != wantCode || !strings.Contains(gotOut, wantOut) || !strings.Contains(gotErr, wantErr) {
		t.Errorf("skein %v: exit code %d, not %d\n%s%s\nshould have %q and %q", args, gotCode, wantCode, gotOut, gotErr, wantOut, wantErr)
	}
	return gotOut
}

// TestArchiveCheckNamesDamagedFiles reads a complete archive, and demands that damage is reported
// with the name of the file.
func TestArchiveCheckNamesDamagedFiles(t *testing.T) {
	t.Parallel()
	dir := archiveTwoOfThreeFollows(t)
	checkRun(t, 0, "up to      sequence 2, 2", "", "replay", "archive", "status", "--data", dir)

	out := checkRun(t, 0, "", "", "replay", "archive", "status", "--archive", filepath.Join(dir, flags.ArchiveDir), "--json")
	var status replaycmd.ArchiveStatus
	if err := json.Unmarshal([]byte(out), &status); err != nil || status.Seq != 2 || status.Epoch != 1 || status.Envelopes != 2 ||
		len(status.Classes) != 2 || status.Bytes == 0 || status.Classes[0].Events != 2 {
		t.Errorf("%+v, %v", status, err)
	}
	checkRun(t, 0, "", "is whole", "replay", "archive", "check", "--data", dir)
	checkRun(t, 1, "", "there is no archive", "replay", "archive", "check", "--data", filepath.Join(dir, "none"))
	checkRun(t, 1, "", "there is no archive", "replay", "archive", "status", "--archive", filepath.Join(dir, "none"))
	checkRun(t, 2, "", "where the archive is", "replay", "archive", "check", "--archive", "off")
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory was made")
	}

	// Damage the only segment of facts.
	segments, err := filepath.Glob(filepath.Join(dir, flags.ArchiveDir, "archive", "facts-*"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	data, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(segments[0], data, 0o600); err != nil {
		t.Fatal(err)
	}

	name := filepath.Base(segments[0])
	checkRun(t, 1, name, "", "replay", "archive", "check", "--data", dir)
	out = checkRun(t, 1, name, "", "replay", "archive", "check", "--data", dir, "--json")
	var check replaycmd.ArchiveCheck
	if err := json.Unmarshal([]byte(out), &check); err != nil || len(check.Damaged) != 1 {
		t.Errorf("%+v, %v", check, err)
	}
}

// TestArchiveRestoreRecoversLog restores a log that is damaged, then one that is lost, and then one
// that is lost again.
func TestArchiveRestoreRecoversLog(t *testing.T) {
	t.Parallel()
	dir := archiveTwoOfThreeFollows(t)
	logger := slog.New(slog.DiscardHandler)
	restore := []string{"replay", "archive", "restore", "--data", dir}

	api, stop := startService(t, dir, logger)

	checkRun(t, 1, "", "in use", restore...)
	checkFollowees(t, api, "dan", "cid", "bob")
	stop()
	checkRun(t, 0, "", "nothing of the log", restore...)

	// Cut off the end of the only file of messages.
	blocks, err := filepath.Glob(filepath.Join(dir, service.LogDir, "jetstream", "*", "streams", "*", "msgs", "*.blk"))
	if err != nil || len(blocks) != 1 {
		t.Fatal(blocks, err)
	}
	data, err := os.ReadFile(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(blocks[0], data[:len(data)-10], 0o600); err != nil {
		t.Fatal(err)
	}

	out := checkRun(t, 0, "graph is at sequence 3 and must be built again", "is damaged", restore...)
	if !strings.Contains(out, "continues in epoch 2 after sequence 2 ") {
		t.Error(out)
	}
	checkRun(t, 0, "", "nothing of the log", restore...)
	moved, err := filepath.Glob(filepath.Join(dir, replaycmd.DamagedDirPrefix+"*"))
	if err != nil || len(moved) != 1 {
		t.Errorf("moved: %v, %v", moved, err)
	}

	// Lose the log. A service that does not find its log leaves an empty directory behind, as does
	// an interrupted restore.
	if err := os.RemoveAll(filepath.Join(dir, service.LogDir)); err != nil {
		t.Fatal(err)
	}
	if _, err := eventlog.Open(t.Context(), eventlog.Config{Dir: filepath.Join(dir, service.LogDir), Existing: true}); err == nil {
		t.Fatal("there is a log")
	}
	if err := os.RemoveAll(filepath.Join(dir, service.StoresDir)); err != nil {
		t.Fatal(err)
	}

	out = checkRun(t, 0, `"epoch":3`, "", append(restore, "--json")...)
	var report replaycmd.RestoredLog
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Seq != 2 || len(report.Stores) != 0 || report.NotSalvagedBecause != "" {
		t.Errorf("%+v, %v", report, err)
	}
	if again, _ := filepath.Glob(filepath.Join(dir, replaycmd.DamagedDirPrefix+"*")); len(again) != 1 {
		t.Errorf("moved: %v", again)
	}

	// Restore a log that is not damaged, then some that cannot be restored.
	checkRun(t, 0, "epoch 4", "", append(restore, "--force")...)
	if moved, _ = filepath.Glob(filepath.Join(dir, replaycmd.DamagedDirPrefix+"*")); len(moved) != 2 {
		t.Errorf("moved: %v", moved)
	}
	checkRun(t, 1, "", "there is no archive", "replay", "archive", "restore", "--data", t.TempDir())
	checkRun(t, 2, "", "where the archive is", append(restore, "--nats", "nats://127.0.0.1:1")...)

	other := t.TempDir()
	_, stop = startService(t, other, logger)
	stop()
	checkRun(t, 1, "", "another log", append(restore[:3:3], "--data", other, "--archive", filepath.Join(dir, flags.ArchiveDir))...)
	if left, _ := filepath.Glob(filepath.Join(other, replaycmd.DamagedDirPrefix+"*")); len(left) > 0 {
		t.Errorf("another log was moved to %v", left)
	}
}

// TestArchiveRestoreRefusesDamagedArchive demands that a damaged log stays where it is while the
// archive is damaged, too, and is restored once the archive is complete.
func TestArchiveRestoreRefusesDamagedArchive(t *testing.T) {
	t.Parallel()
	dir := archiveTwoOfThreeFollows(t)
	segments, err := filepath.Glob(filepath.Join(dir, flags.ArchiveDir, "archive", "facts-*"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	intact, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(intact)
	flipped[len(flipped)/2] ^= 1
	if err := os.WriteFile(segments[0], flipped, 0o600); err != nil {
		t.Fatal(err)
	}
	restore := []string{"replay", "archive", "restore", "--force", "--data", dir}
	checkRun(t, 1, "", filepath.Base(segments[0]), restore...)
	checkRun(t, 0, "epoch 1", "", "replay", "archive", "status", "--data", dir)
	if moved, _ := filepath.Glob(filepath.Join(dir, replaycmd.DamagedDirPrefix+"*")); len(moved) > 0 {
		t.Errorf("the log was moved to %v", moved)
	}

	// Bytes after the end of a segment are reported, but are not needed.
	if err := os.WriteFile(segments[0], append(intact, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	checkRun(t, 1, "bytes follow its end", "", "replay", "archive", "check", "--data", dir)
	checkRun(t, 0, "continues in epoch 2 after sequence 3 ", "moved it", restore...)
}

// TestArchiveRestoreContinuesAfterInterruption interrupts the command after it has moved the log
// away.
func TestArchiveRestoreContinuesAfterInterruption(t *testing.T) {
	t.Parallel()
	dir := archiveTwoOfThreeFollows(t)
	if err := os.Rename(filepath.Join(dir, service.LogDir), filepath.Join(dir, replaycmd.DamagedDirPrefix+"20260101T000000.000000Z")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, replaycmd.DamagedDirPrefix+"20260202T000000.000000Z"), 0o700); err != nil {
		t.Fatal(err)
	}
	out := checkRun(t, 0, "gave 1 envelope with 1 event", "", "replay", "archive", "restore", "--data", dir)
	if !strings.Contains(out, "graph is at sequence 3 and continues.\n") {
		t.Error(out)
	}
}

// TestServeRefusesEarlierLog demands that a log that ends before its archive, or is of an earlier
// epoch, takes no events.
func TestServeRefusesEarlierLog(t *testing.T) {
	t.Parallel()
	dir, early := t.TempDir(), t.TempDir()
	logger := slog.New(slog.DiscardHandler)
	api, stop := startService(t, dir, logger)
	mustPublish(t, api, userFollowed("ann", "bob"))
	stop()
	if err := os.CopyFS(early, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	api, stop = startService(t, dir, logger)
	mustPublish(t, api, userFollowed("ann", "cid"))
	stop()
	archiveLog(t, dir)
	serve := []string{"serve", "--listen", "127.0.0.1:0", "--archive", filepath.Join(dir, flags.ArchiveDir), "--data"}
	checkRun(t, 1, "", "Restore it with `skein replay archive restore`", append(serve, early)...)

	// Put the log of the earlier epoch back after the restore.
	checkRun(t, 0, "", "moved it", "replay", "archive", "restore", "--force", "--data", dir)
	moved, err := filepath.Glob(filepath.Join(dir, replaycmd.DamagedDirPrefix+"*"))
	if err != nil || len(moved) != 1 {
		t.Fatal(moved, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, service.LogDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(moved[0], filepath.Join(dir, service.LogDir)); err != nil {
		t.Fatal(err)
	}
	checkRun(t, 1, "", "does not continue where its archive ends", append(serve, dir)...)
}

// TestArchiveRestoreRebuildsEventIDs demands that `check` names a damaged file of event ids, and
// that `restore` rebuilds the file without a new epoch.
func TestArchiveRestoreRebuildsEventIDs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	api, stop := startService(t, dir, slog.New(slog.DiscardHandler))
	once := userFollowed("ann", "bob")
	once.EventId = "once"
	mustPublish(t, api, once)
	mustPublish(t, api, userFollowed("ann", "cid"))
	stop()
	archiveLog(t, dir)

	names, err := filepath.Glob(filepath.Join(dir, flags.ArchiveDir, "archive", "recent-*"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	if err := os.WriteFile(names[0], []byte("harmed"), 0o600); err != nil {
		t.Fatal(err)
	}

	checkRun(t, 1, filepath.Base(names[0]), "", "replay", "archive", "check", "--data", dir)
	restore := []string{"replay", "archive", "restore", "--data", dir}
	checkRun(t, 0, "nothing is taken twice", "nothing of the log is lost; damaged files of event ids", restore...)
	checkRun(t, 0, "", "is whole", "replay", "archive", "check", "--data", dir)
	checkRun(t, 0, "up to      sequence 2, 2", "", "replay", "archive", "status", "--data", dir)
	checkRun(t, 0, "", "nothing is restored", restore...)

	// Lose the log as well. Event ids of its last minutes may then be taken twice, which the report
	// says.
	if err := os.RemoveAll(filepath.Join(dir, service.LogDir)); err != nil {
		t.Fatal(err)
	}
	if names, err = filepath.Glob(filepath.Join(dir, flags.ArchiveDir, "archive", "recent-*")); err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}

	out := checkRun(t, 0, `"may_be_taken_twice":true`, "", append(restore, "--json")...)
	var report replaycmd.RestoredLog
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Seq != 2 || report.EventIDs == nil || report.EventIDs.From >= report.EventIDs.To {
		t.Errorf("%+v, %v", report, err)
	}
	checkRun(t, 0, "", "is whole", "replay", "archive", "check", "--data", dir)
}
