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

// DamagedDirPrefix begins the names of directories below the data directory to which damaged logs are moved.
const DamagedDirPrefix = service.LogDir + "-damaged-"

type archiveRestoreCmd struct {
	archiveLocationFlags `embed:""`

	Force bool `help:"Begin a new epoch even if nothing seems wrong with the log."`
	JSON  bool `help:"Print the report as one JSON object."`

	ReplaceStream bool `help:"With --nats: delete the damaged stream, when what can be read of it is archived. The rest is gone for good."`

	flags.NATSFlags `embed:""`
	flags.FoldFlags `embed:""`
}

// Help is shown below the flags.
func (*archiveRestoreCmd) Help() string {
	return `The whole archive is read and checked first. If a segment of it is damaged, nothing is changed, and the error names the segment.

A damaged DATA/log is moved to DATA/log-damaged-TIME and stays there; what can still be read of it is archived first. The new
log begins after that, in a new epoch. The report says which sequences are missing, and which stores must be built again:
those that had come further than the log now goes.

Damaged files of event ids in the archive are made again from the log, as far as it has them; the report says what may be taken
twice. That needs no new epoch where nothing else is wrong.

A command that was interrupted is given again. Where nothing is wrong, nothing is done. With --nats a damaged
stream that is still there is left alone, unless --replace-stream is given: then what can be read of it is archived, and it is
deleted. Messages that cannot be read now are lost with it, even to later repair: save it first, with "nats stream backup SKEIN DIR" or as
copies of the servers' directories. Stop all services before.`
}

// Run restores the log.
func (c *archiveRestoreCmd) Run(ctx context.Context, std *command.Streams) error {
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
	prepare := c.prepareStream
	if c.NATS == "" {
		if c.ReplaceStream {
			return command.Usagef("--replace-stream is for --nats: a damaged DATA/log is moved away")
		}
		prepare = c.prepareDirectory
	}
	if needed, err := prepare(ctx, std, &o); err != nil || !needed {
		return err
	}
	std.Sayf("restoring the log from %s", b)
	r, err := c.restore(ctx, std, o)
	if errors.Is(err, archive.ErrDamaged) {
		return fmt.Errorf("%w\nbring whole copies of these objects back, and give the command again", err)
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

// restore restores the log, and shows how much of the archive is checked.
func (*archiveRestoreCmd) restore(ctx context.Context, std *command.Streams, o archiver.RestoreOptions) (archiver.Restored, error) {
	var at replay.Progress
	at.StartPhase(replay.Checking, "bytes", 0)
	stop := command.ShowProgress(std.Err, "check of the archive", &at)
	defer stop()
	o.Checked = func(done, total uint64) {
		at.SetTotal(total)
		at.SetDone(done)
	}
	return archiver.Restore(ctx, o)
}

// findMismatch returns an error if a stream does not fit its archive or the stores beside it.
func findMismatch(x archiver.StreamCheck, o *archiver.RestoreOptions) error {
	for name, at := range o.Stores {
		if x.Wrong == nil && at.Epoch == x.Epoch && at.Seq > x.Last {
			return fmt.Errorf("it ends at sequence %d, and %s is at %d", x.Last, name, at.Seq)
		}
	}
	return x.Wrong
}

// prepareStream examines the stream on external servers. It returns false if there is nothing to restore.
func (c *archiveRestoreCmd) prepareStream(ctx context.Context, std *command.Streams, o *archiver.RestoreOptions) (bool, error) {
	x, err := archiver.CheckStream(ctx, o.Bucket, o.Stream)
	switch {
	case err != nil:
		return false, err
	case errors.Is(x.Wrong, events.ErrNoLog):
		return true, nil
	case errors.Is(x.Wrong, events.ErrOtherLog), errors.Is(x.Wrong, archiver.ErrArchiveBehind):
		return false, fmt.Errorf("%s: %w", c.NATS, x.Wrong)
	}
	why := findMismatch(x, o)
	if why == nil && !c.Force {
		if done, err := c.replaceEventIDFiles(ctx, std, o); done || err != nil {
			return false, err
		}
		std.Sayf("nothing of the log on %s is lost: what the archive lacks can be read, to sequence %d; nothing is restored", c.NATS, x.Last)
		return false, nil
	}
	if why == nil {
		why = errors.New("nothing seems wrong with it")
	}
	if !c.ReplaceStream {
		return false, fmt.Errorf("stream %s on %s: %w\n%w: stop all services, save it with `nats stream backup %s DIR`, and give the "+
			"command again with --replace-stream: it archives what can be read and deletes the stream, with all that cannot",
			eventlog.StreamName, c.NATS, why, events.ErrLogExists, eventlog.StreamName)
	}
	std.Sayf("stream %s on %s: %v", eventlog.StreamName, c.NATS, why)
	std.Sayf("archiving what can be read of it; then it is deleted")
	o.Replace = true
	return true, nil
}

// prepareDirectory examines the log in the data directory, and has a damaged one moved away. It finds the log from which envelopes can be
// salvaged, and returns false if there is nothing to restore.
func (c *archiveRestoreCmd) prepareDirectory(ctx context.Context, std *command.Streams, o *archiver.RestoreOptions) (bool, error) {
	dir := o.Stream.Dir
	switch left, err := hasFiles(dir); {
	case err != nil:
		return false, err
	case left:
		x, err := archiver.CheckStream(ctx, o.Bucket, o.Stream)
		if err != nil {
			return false, err
		}
		if errors.Is(x.Wrong, events.ErrOtherLog) || errors.Is(x.Wrong, archiver.ErrArchiveBehind) {
			return false, fmt.Errorf("%s: %w", dir, x.Wrong)
		}
		why := findMismatch(x, o)
		if why == nil && !c.Force {
			if done, err := c.replaceEventIDFiles(ctx, std, o); done || err != nil {
				return false, err
			}
			std.Sayf("nothing of the log in %s is lost: what the archive lacks can be read, to sequence %d; nothing is restored", dir, x.Last)
			return false, nil
		}
		if why != nil {
			std.Sayf("the log in %s is damaged: %v", dir, why)
		}
		moved := filepath.Join(c.Data, DamagedDirPrefix+time.Now().UTC().Format("20060102T150405.000000Z"))
		o.FreeSpace = func() error {
			if err := os.Rename(dir, moved); err != nil {
				return err
			}
			std.Sayf("moved it to %s", moved)
			return nil
		}
		o.Damaged = &eventlog.Config{Dir: moved, Logger: o.Stream.Logger}
		if canSalvage(x) {
			return true, nil
		}
	}
	// An earlier run that was interrupted has moved a log away. Without one, Restore reports why nothing can be salvaged.
	earlier, err := c.findDamagedLog(ctx, o.Bucket)
	if earlier != "" {
		o.Damaged = &eventlog.Config{Dir: earlier, Logger: o.Stream.Logger}
	}
	return true, err
}

// canSalvage reports whether a damaged log may have something that its archive lacks.
func canSalvage(x archiver.StreamCheck) bool {
	return x.Last > 0 && !errors.Is(x.Wrong, events.ErrRewritten)
}

// replaceEventIDFiles replaces damaged files of event ids in the archive of a log that is whole. It returns false if there are none.
func (c *archiveRestoreCmd) replaceEventIDFiles(ctx context.Context, std *command.Streams, o *archiver.RestoreOptions) (bool, error) {
	healed, err := archiver.RecoverIDs(ctx, o.Bucket, o.Stream)
	if err != nil || healed == nil {
		return false, err
	}
	std.Sayf("nothing of the log is lost; files of event ids in %s were damaged, and are replaced", o.Bucket)
	if c.JSON {
		return true, command.PrintPlainJSON(std.Out, RestoredLog{Lost: []seqRange{}, Stores: []restoredStore{}, Repeats: newEventIDReport(healed)})
	}
	fmt.Fprint(std.Out, healed)
	return true, nil
}

// findDamagedLog returns the latest damaged log from which something can be salvaged; empty means there is none. It finds one if an earlier run
// was interrupted after it had moved the log away.
func (c *archiveRestoreCmd) findDamagedLog(ctx context.Context, b bucket.Bucket) (string, error) {
	dirs, err := filepath.Glob(filepath.Join(c.Data, DamagedDirPrefix+"*"))
	if err != nil {
		return "", err
	}
	slices.Sort(dirs)
	for _, dir := range slices.Backward(dirs) {
		x, err := archiver.CheckStream(ctx, b, eventlog.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return "", err
		}
		if canSalvage(x) {
			return dir, nil
		}
	}
	return "", nil
}

// hasFiles reports whether there are files in a directory. A service that has not found its log may have left an empty one.
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

// readStorePositions returns the positions of the stores in the data directory.
func (c *archiveRestoreCmd) readStorePositions() (map[string]events.Cursor, error) {
	settings, err := c.Settings()
	if err != nil {
		return nil, err
	}
	at := map[string]events.Cursor{}
	for _, p := range all.Constructors(settings) {
		name := p().Name()
		store, err := live.Open(live.Options{New: p, Options: store.Options{
			Dir: filepath.Join(c.Data, service.StoresDir), ReadOnly: true,
		}})
		if errors.Is(err, projections.ErrNoStore) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if cursor := store.Cursor(); cursor != (events.Cursor{}) {
			at[name] = cursor
		}
		if err := store.Close(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return at, nil
}

// RestoredLog is the output for programs.
type RestoredLog struct {
	Log       string          `json:"log"`
	Epoch     uint32          `json:"epoch"`
	Archived  uint64          `json:"archived_seq"`
	Head      uint64          `json:"seq"`
	Time      string          `json:"time"`
	Envelopes uint64          `json:"salvaged_envelopes"`
	Events    uint64          `json:"salvaged_events"`
	Lost      []seqRange      `json:"lost"`
	Note      string          `json:"not_salvaged_because,omitempty"`
	Stores    []restoredStore `json:"stores"`
	Repeats   *eventIDReport  `json:"event_ids,omitempty"`
}

// eventIDReport reports on damaged files of event ids.
type eventIDReport struct {
	Damaged []string `json:"damaged"`
	// Repeatable reports whether some event ids were not found elsewhere: those after the sequence From, up to To.
	Repeatable bool   `json:"may_be_taken_twice"`
	From       string `json:"from,omitempty"`
	To         string `json:"to,omitempty"`
}

func newEventIDReport(r *archiver.RecoveredIDs) *eventIDReport {
	if r == nil {
		return nil
	}
	j := &eventIDReport{Repeatable: !r.Whole}
	for _, err := range r.Damaged {
		j.Damaged = append(j.Damaged, err.Error())
	}
	if !r.Whole {
		j.From, j.To = r.From.Time().UTC().Format(time.RFC3339Nano), r.To.Time().UTC().Format(time.RFC3339Nano)
	}
	return j
}

type seqRange struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

type restoredStore struct {
	Name    string     `json:"name"`
	Seq     uint64     `json:"seq"`
	Rebuild bool       `json:"rebuild"`
	Because string     `json:"because,omitempty"`
	Holds   []seqRange `json:"holds_lost"`
}

func newRestoredLog(r archiver.Restored) RestoredLog {
	j := RestoredLog{
		Log: fmt.Sprintf("%x", r.Log), Epoch: r.Epoch, Archived: r.Archived.Seq, Head: r.Head.Seq,
		Time: r.Head.LastTime.Time().UTC().Format(time.RFC3339Nano), Lost: []seqRange{}, Stores: []restoredStore{},
		Repeats: newEventIDReport(r.Repeats),
	}
	if s := r.Salvaged; s != nil {
		j.Envelopes, j.Events, j.Lost = s.Envelopes, s.Events, newSeqRanges(s.Lost)
	}
	if r.Unreadable != nil {
		j.Note = r.Unreadable.Error()
	}
	for _, f := range r.Stores {
		s := restoredStore{Name: f.Name, Seq: f.Cursor.Seq, Rebuild: f.Refused != nil, Holds: newSeqRanges(f.Holds)}
		if f.Refused != nil {
			s.Because = f.Refused.Error()
		}
		j.Stores = append(j.Stores, s)
	}
	return j
}

func newSeqRanges(list []eventlog.SeqRange) []seqRange {
	out := make([]seqRange, len(list))
	for i, r := range list {
		out[i] = seqRange{r.From, r.To}
	}
	return out
}
