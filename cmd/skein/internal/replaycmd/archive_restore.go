package replaycmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/archiver"
)

type archiveRestoreCmd struct {
	archiveLocationFlags `embed:""`

	Force bool `help:"Restore the log, in a new epoch, even if nothing seems wrong with it."`
	JSON  bool `help:"Print the report as one JSON object."`

	ReplaceStream bool `help:"With --nats: archive what can be read of the damaged stream, and delete the stream. The rest is lost for good."`

	flags.NATSFlags `embed:""`
	flags.FoldFlags `embed:""`
}

// Help is shown below the flags.
func (*archiveRestoreCmd) Help() string {
	return `The command first reads and checks the whole archive. If a segment is damaged, nothing is changed, and the error names the segment.

It then archives what can still be read of a damaged DATA/log, and moves that directory to DATA/log-damaged-TIME, where it stays. The new log
continues after the archived part, in a new epoch. The report says which sequences are missing, and which stores must be rebuilt because they
had folded more than the new log has.

If files of event ids in the archive are damaged, the command makes them again from the log, as far as the log has the events. The report says
which events may be accepted twice. This needs no new epoch if nothing else is wrong.

If the command was interrupted, run it again. If nothing is wrong, it does nothing. With --nats, it does not change a damaged stream that still
exists, unless --replace-stream is given: then it archives what can be read of the stream, and deletes it. Messages that cannot be read are
then lost, even if they could be repaired later. So first stop all services and save the stream, with "nats stream backup SKEIN DIR" or by
copying the directories of the servers.`
}

// Run checks the log and restores it from the archive if it is lost or damaged. If nothing is wrong
// with the log, Run only replaces damaged files of event ids in the archive.
func (c *archiveRestoreCmd) Run(ctx context.Context, std *command.Streams) error {
	if c.NATS == "" && c.ReplaceStream {
		return command.Usagef("--replace-stream needs --nats: without it, a damaged log is moved away and not deleted")
	}

	b, err := c.openBucket(ctx, c.NATS != "")
	if err != nil {
		return err
	}
	stores, err := c.readStorePositions()
	if err != nil {
		return err
	}

	o := archiver.RestoreOptions{Bucket: b, Stores: stores, Stream: c.Config(filepath.Join(c.Data, service.LogDir))}
	o.Stream.Logger = slog.New(slog.DiscardHandler)

	prepare := c.prepareDirectory
	if c.NATS != "" {
		prepare = c.prepareStream
	}
	needed, err := prepare(ctx, std, &o)
	if err != nil || !needed {
		return err
	}

	std.Sayf("restoring the log from %s", b)
	r, err := c.restoreLog(ctx, std, o)
	if errors.Is(err, archive.ErrDamaged) {
		return fmt.Errorf("%w\nRestore undamaged copies of these files, and run the command again", err)
	}
	if err != nil {
		return err
	}

	if c.JSON {
		return command.PrintPlainJSON(std.Out, newRestoredLog(r))
	}
	fmt.Fprint(std.Out, r)
	return nil
}

// restoreLog restores the log, and shows how much of the archive it has checked.
func (*archiveRestoreCmd) restoreLog(ctx context.Context, std *command.Streams, o archiver.RestoreOptions) (archiver.Restored, error) {
	var progress replay.Progress
	progress.StartPhase(replay.Checking, "bytes", 0)
	stop := command.ShowProgress(std.Err, "check of the archive", &progress)
	defer stop()
	o.Checked = func(done, total uint64) {
		progress.SetTotal(total)
		progress.SetDone(done)
	}
	return archiver.Restore(ctx, o)
}

// findMismatch returns what is wrong with a stream: that it does not continue its archive, or that
// it ends before the position of a store.
func findMismatch(check archiver.StreamCheck, o *archiver.RestoreOptions) error {
	if check.Problem != nil {
		return check.Problem
	}
	for name, cursor := range o.Stores {
		if cursor.Epoch == check.Epoch && cursor.Seq > check.Last {
			return fmt.Errorf("it ends at sequence %d, and %s is at %d", check.Last, name, cursor.Seq)
		}
	}
	return nil
}

// prepareStream checks the stream on NATS servers, and sets in o how to replace it. It returns
// false if there is nothing to restore.
func (c *archiveRestoreCmd) prepareStream(ctx context.Context, std *command.Streams, o *archiver.RestoreOptions) (bool, error) {
	check, err := archiver.CheckStream(ctx, o.Bucket, o.Stream)
	if err != nil {
		return false, err
	}
	if errors.Is(check.Problem, events.ErrNoLog) {
		return true, nil // there is no stream to replace
	}
	if errors.Is(check.Problem, events.ErrOtherLog) || errors.Is(check.Problem, archiver.ErrArchiveBehind) {
		return false, fmt.Errorf("%s: %w", c.NATS, check.Problem)
	}

	mismatch := findMismatch(check, o)
	if mismatch == nil && !c.Force {
		return false, c.reportWhole(ctx, std, o, "on "+c.NATS, check.Last)
	}
	if mismatch == nil {
		mismatch = errors.New("nothing seems wrong with it")
	}
	if !c.ReplaceStream {
		return false, fmt.Errorf("stream %s on %s: %w\n%w: stop all services, save the stream with `nats stream backup %s DIR`, and run the "+
			"command again with --replace-stream, which archives what can be read of the stream and deletes it",
			eventlog.StreamName, c.NATS, mismatch, events.ErrLogExists, eventlog.StreamName)
	}
	std.Sayf("stream %s on %s: %v", eventlog.StreamName, c.NATS, mismatch)
	std.Sayf("archiving what can be read of the stream; then the stream is deleted")
	o.Replace = true
	return true, nil
}

// prepareDirectory checks the log in the data directory. It sets in o how to move a damaged log
// away, and from which damaged log envelopes can be salvaged. It returns false if there is nothing
// to restore.
func (c *archiveRestoreCmd) prepareDirectory(ctx context.Context, std *command.Streams, o *archiver.RestoreOptions) (bool, error) {
	dir := o.Stream.Dir
	hasLog, err := hasFiles(dir)
	if err != nil {
		return false, err
	}
	if hasLog {
		check, err := archiver.CheckStream(ctx, o.Bucket, o.Stream)
		if err != nil {
			return false, err
		}
		if errors.Is(check.Problem, events.ErrOtherLog) || errors.Is(check.Problem, archiver.ErrArchiveBehind) {
			return false, fmt.Errorf("%s: %w", dir, check.Problem)
		}
		mismatch := findMismatch(check, o)
		if mismatch == nil && !c.Force {
			return false, c.reportWhole(ctx, std, o, "in "+dir, check.Last)
		}
		if mismatch != nil {
			std.Sayf("the log in %s is damaged: %v", dir, mismatch)
		}

		movedDir := filepath.Join(c.Data, service.DamagedLogPrefix+time.Now().UTC().Format("20060102T150405.000000Z"))
		o.FreeSpace = func() error {
			if err := os.Rename(dir, movedDir); err != nil {
				return err
			}
			std.Sayf("moved it to %s", movedDir)
			return nil
		}
		o.Damaged = &eventlog.Config{Dir: movedDir, Logger: o.Stream.Logger}
		if canSalvage(check) {
			return true, nil
		}
	}

	// An earlier run may have moved a log away before it was interrupted; then salvage from that
	// one. If there is none, o.Damaged stays, and the report says why nothing can be salvaged.
	earlierDir, err := c.findDamagedLog(ctx, o.Bucket)
	if earlierDir != "" {
		o.Damaged = &eventlog.Config{Dir: earlierDir, Logger: o.Stream.Logger}
	}
	return true, err
}

// reportWhole says that nothing of a log is lost. Before that, it replaces damaged files of event
// ids in the archive, if there are any. place says where the log is, as in "in DIR" or "on URL".
func (c *archiveRestoreCmd) reportWhole(
	ctx context.Context, std *command.Streams, o *archiver.RestoreOptions, place string, lastSeq uint64,
) error {
	replaced, err := c.replaceEventIDFiles(ctx, std, o)
	if err != nil || replaced {
		return err
	}
	std.Sayf("nothing of the log %s is lost: the part after the archive can be read, up to sequence %d; nothing is restored", place, lastSeq)
	return nil
}

// canSalvage reports whether a damaged log may have envelopes that belong to the log and that the
// archive lacks. The envelopes of a log that was rewritten do not continue the archive.
func canSalvage(check archiver.StreamCheck) bool {
	return check.Last > 0 && !errors.Is(check.Problem, events.ErrRewritten)
}

// replaceEventIDFiles replaces damaged files of event ids in the archive, from a log that is not
// damaged. It returns false if none are damaged.
func (c *archiveRestoreCmd) replaceEventIDFiles(ctx context.Context, std *command.Streams, o *archiver.RestoreOptions) (bool, error) {
	recovered, err := archiver.RecoverIDs(ctx, o.Bucket, o.Stream)
	if err != nil || recovered == nil {
		return false, err
	}
	std.Sayf("nothing of the log is lost; damaged files of event ids in %s were replaced", o.Bucket)
	if c.JSON {
		return true, command.PrintPlainJSON(std.Out, RestoredLog{Lost: []seqRange{}, Stores: []restoredStore{}, EventIDs: newEventIDReport(recovered)})
	}
	fmt.Fprint(std.Out, recovered)
	return true, nil
}

// findDamagedLog returns the directory of the latest damaged log that an earlier run has moved away
// and that has something to salvage. It returns the empty string if there is none.
func (c *archiveRestoreCmd) findDamagedLog(ctx context.Context, b bucket.Bucket) (string, error) {
	dirs, err := service.DamagedLogs(c.Data)
	if err != nil {
		return "", err
	}
	for _, dir := range slices.Backward(dirs) {
		check, err := archiver.CheckStream(ctx, b, eventlog.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return "", err
		}
		if canSalvage(check) {
			return dir, nil
		}
	}
	return "", nil
}

// hasFiles reports whether a directory has files besides a lock file. A service that did not find
// its log leaves a directory without any.
func hasFiles(dir string) (found bool, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "LOCK" {
			found = true
			return fs.SkipAll
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return found, err
}

// readStorePositions returns the cursors of the stores in the data directory, by projection. It
// leaves out projections without a store, and stores that have folded nothing yet.
func (c *archiveRestoreCmd) readStorePositions() (map[string]events.Cursor, error) {
	settings, err := c.Settings()
	if err != nil {
		return nil, err
	}
	cursors := map[string]events.Cursor{}
	for _, newProjection := range all.Constructors(settings) {
		name := newProjection().Name()

		projection, err := live.Open(live.Options{New: newProjection, Options: store.Options{
			Dir: filepath.Join(c.Data, service.StoresDir), ReadOnly: true,
			// The directory may be that of a node, whose stores do not hold all partitions.
			Partitioned: true,
		}})
		if errors.Is(err, projections.ErrNoStore) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		if cursor := projection.Cursor(); cursor != (events.Cursor{}) {
			cursors[name] = cursor
		}
		if err := projection.Close(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return cursors, nil
}

// RestoredLog is what `skein replay archive restore --json` prints.
type RestoredLog struct {
	Log                string          `json:"log"`
	Epoch              uint32          `json:"epoch"`
	ArchivedSeq        uint64          `json:"archived_seq"`
	Seq                uint64          `json:"seq"`
	Time               string          `json:"time"`
	SalvagedEnvelopes  uint64          `json:"salvaged_envelopes"`
	SalvagedEvents     uint64          `json:"salvaged_events"`
	Lost               []seqRange      `json:"lost"`
	NotSalvagedBecause string          `json:"not_salvaged_because,omitempty"`
	Stores             []restoredStore `json:"stores"`
	EventIDs           *eventIDReport  `json:"event_ids,omitempty"`
}

// eventIDReport says which files of event ids were damaged.
type eventIDReport struct {
	Damaged []string `json:"damaged"`
	// MayBeTakenTwice says that the ids of events after the time From, up to To, are not all known
	// any more. If a client publishes such an event again, the log accepts it a second time.
	MayBeTakenTwice bool   `json:"may_be_taken_twice"`
	From            string `json:"from,omitempty"`
	To              string `json:"to,omitempty"`
}

// newEventIDReport returns the report on recovered event ids, or nil if no file was damaged.
func newEventIDReport(r *archiver.RecoveredIDs) *eventIDReport {
	if r == nil {
		return nil
	}
	j := &eventIDReport{MayBeTakenTwice: !r.Complete}
	for _, err := range r.Damaged {
		j.Damaged = append(j.Damaged, err.Error())
	}
	if !r.Complete {
		j.From = r.From.Time().UTC().Format(time.RFC3339Nano)
		j.To = r.To.Time().UTC().Format(time.RFC3339Nano)
	}
	return j
}

// seqRange is a range of sequences, both ends included.
type seqRange struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// restoredStore says whether a store can continue with the restored log, or must be rebuilt.
type restoredStore struct {
	Name          string `json:"name"`
	Seq           uint64 `json:"seq"`
	MustRebuild   bool   `json:"rebuild"`
	RebuildReason string `json:"because,omitempty"`
	// HoldsLost are the lost sequences that the store has folded.
	HoldsLost []seqRange `json:"holds_lost"`
}

// newRestoredLog returns what --json prints about a restored log.
func newRestoredLog(r archiver.Restored) RestoredLog {
	j := RestoredLog{
		Log:         fmt.Sprintf("%x", r.Log),
		Epoch:       r.Epoch,
		ArchivedSeq: r.Archived.Seq,
		Seq:         r.Head.Seq,
		Time:        r.Head.LastTime.Time().UTC().Format(time.RFC3339Nano),
		Lost:        []seqRange{}, // not nil, so that JSON has an empty list
		Stores:      []restoredStore{},
		EventIDs:    newEventIDReport(r.Repeats),
	}

	// If nothing of the damaged log could be salvaged, r.Unreadable says why.
	if s := r.Salvaged; s != nil {
		j.SalvagedEnvelopes = s.Envelopes
		j.SalvagedEvents = s.Events
		j.Lost = newSeqRanges(s.Lost)
	}
	if r.Unreadable != nil {
		j.NotSalvagedBecause = r.Unreadable.Error()
	}

	for _, s := range r.Stores {
		restored := restoredStore{Name: s.Name, Seq: s.Cursor.Seq, HoldsLost: newSeqRanges(s.LostSequences)}
		if s.RebuildReason != nil {
			restored.MustRebuild = true
			restored.RebuildReason = s.RebuildReason.Error()
		}
		j.Stores = append(j.Stores, restored)
	}
	return j
}

// newSeqRanges returns ranges of the log as ranges of the output.
func newSeqRanges(list []eventlog.SeqRange) []seqRange {
	out := make([]seqRange, len(list))
	for i, r := range list {
		out[i] = seqRange{r.From, r.To}
	}
	return out
}
