package replaycmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/replay"
)

// archiveCmd is the command `skein replay archive`. Its subcommands read the archive of the log
// themselves, without a service.
type archiveCmd struct {
	Status  archiveStatusCmd  `cmd:"" help:"Show what the archive of the log contains."`
	Check   archiveCheckCmd   `cmd:"" help:"Read the whole archive and compare it with its checksums."`
	Restore archiveRestoreCmd `cmd:"" help:"Restore a lost or damaged log from its archive. The service must be stopped."`
}

// archiveLocationFlags say where an existing archive is.
type archiveLocationFlags struct {
	flags.ArchiveFlags `embed:""`

	Data string `help:"Data directory of the service." default:"./skein-data" type:"path" placeholder:"DIR"`
}

// openBucket opens the bucket of an archive that --archive names; by default, the directory of the
// archive in the data directory. external says that the log is on NATS servers; then there is no
// default. The service creates a directory that does not exist, but openBucket fails.
func (f *archiveLocationFlags) openBucket(ctx context.Context, external bool) (bucket.Bucket, error) {
	location := f.Archive
	if location == "" && !external {
		location = filepath.Join(f.Data, flags.ArchiveDir)
	}
	isDirectory := location != "" && location != flags.ArchiveOff && !strings.Contains(location, "://")
	if isDirectory {
		if _, err := os.Stat(location); err != nil {
			return nil, fmt.Errorf("there is no archive: %w", err)
		}
	}

	b, err := f.Open(ctx, f.Data, external)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, command.Usagef("--archive TARGET must say where the archive is")
	}
	return b, nil
}

// openArchive opens the archive. The command need not know to which log the archive belongs.
func (f *archiveLocationFlags) openArchive(ctx context.Context) (*archive.Archive, error) {
	b, err := f.openBucket(ctx, false)
	if err != nil {
		return nil, err
	}

	id, ok, err := archive.LogOf(ctx, b)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("there is no archive in %s", b)
	}
	return archive.Open(ctx, b, id)
}

type archiveStatusCmd struct {
	archiveLocationFlags `embed:""`

	JSON bool `help:"Print one JSON object."`
}

// ArchiveStatus is what `skein replay archive status --json` prints.
type ArchiveStatus struct {
	Archive      string          `json:"archive"`
	Log          string          `json:"log"`
	Epoch        uint32          `json:"epoch"`
	Seq          uint64          `json:"seq"`
	Time         string          `json:"time"`
	Envelopes    uint64          `json:"envelopes"`
	Bytes        uint64          `json:"bytes"`
	Classes      []archiveClass  `json:"classes"`
	Predecessors []previousEpoch `json:"predecessors"`
}

// archiveClass is the size of the files of one class of events in the archive.
type archiveClass struct {
	Class    string `json:"class"`
	Segments int    `json:"segments"`
	Bytes    uint64 `json:"bytes"`
	Events   uint64 `json:"events"`
}

// previousEpoch is an epoch of the log before the present one. Last is the sequence after which the
// log continued in another epoch.
type previousEpoch struct {
	Epoch uint32 `json:"epoch"`
	Last  uint64 `json:"last"`
}

// Run prints what the archive contains. It reads only the manifest of the archive.
func (c *archiveStatusCmd) Run(ctx context.Context, std *command.Streams) error {
	a, err := c.openArchive(ctx)
	if err != nil {
		return err
	}

	info := a.Info()
	s := ArchiveStatus{
		Archive:      info.Location,
		Log:          fmt.Sprintf("%x", info.End.Log),
		Epoch:        info.Epoch,
		Seq:          info.End.Seq,
		Time:         info.End.LastTime.Time().UTC().Format(time.RFC3339Nano),
		Envelopes:    info.Envelopes,
		Classes:      []archiveClass{}, // not nil, so that JSON has an empty list
		Predecessors: []previousEpoch{},
	}
	for _, class := range info.Classes {
		s.Bytes += class.Bytes
		s.Classes = append(s.Classes, archiveClass{class.Class.String(), class.Segments, class.Bytes, class.Events})
	}
	for _, p := range a.Predecessors() {
		s.Predecessors = append(s.Predecessors, previousEpoch{p.Epoch, p.Last})
	}

	if c.JSON {
		return command.PrintPlainJSON(std.Out, s)
	}

	fmt.Fprintf(std.Out, "archive    %s\n", s.Archive)
	fmt.Fprintf(std.Out, "log        %s, epoch %d\n", s.Log, s.Epoch)
	fmt.Fprintf(std.Out, "up to      sequence %d, %s\n", s.Seq, s.Time)
	fmt.Fprintf(std.Out, "envelopes  %d\n", s.Envelopes)
	for _, p := range s.Predecessors {
		fmt.Fprintf(std.Out, "before     epoch %d, up to sequence %d\n", p.Epoch, p.Last)
	}

	t := command.NewTable(std.Out, "CLASS", "SEGMENTS", "SIZE", "EVENTS")
	for _, class := range s.Classes {
		t.Row(class.Class, fmt.Sprint(class.Segments), events.FormatSize(class.Bytes), fmt.Sprint(class.Events))
	}
	return t.Flush()
}

type archiveCheckCmd struct {
	archiveLocationFlags `embed:""`

	JSON bool `help:"Print one JSON object."`
}

// ArchiveCheck is what `skein replay archive check --json` prints.
type ArchiveCheck struct {
	Archive string   `json:"archive"`
	Seq     uint64   `json:"seq"`
	Bytes   uint64   `json:"bytes"`
	Damaged []string `json:"damaged"`
}

// Run reads the whole archive and prints which files are damaged. It returns an error if any is.
func (c *archiveCheckCmd) Run(ctx context.Context, std *command.Streams) error {
	a, err := c.openArchive(ctx)
	if errors.Is(err, archive.ErrDamaged) { // the manifest is damaged
		return c.printResult(std, ArchiveCheck{Damaged: []string{err.Error()}})
	}
	if err != nil {
		return err
	}

	var progress replay.Progress
	progress.StartPhase(replay.Checking, "bytes", 0)
	stopProgress := command.ShowProgress(std.Err, "check", &progress)
	result := ArchiveCheck{Archive: a.Info().Location, Damaged: []string{}}
	err = a.Check(ctx, func(read, total uint64) {
		progress.SetTotal(total)
		progress.SetDone(read)
		result.Bytes = read
	})
	stopProgress()
	result.Seq = a.End().Seq

	// A check that was interrupted says nothing about the files that it did not read.
	if ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if err != nil && !errors.Is(err, archive.ErrDamaged) {
		return err
	}
	if err != nil {
		result.Damaged = strings.Split(err.Error(), "\n") // one line for each damaged file
	}
	return c.printResult(std, result)
}

// printResult prints the result of a check: with --json an object, otherwise one line for each
// damaged file, or that the archive is whole. It returns [command.ErrSilent] if a file is damaged.
func (c *archiveCheckCmd) printResult(std *command.Streams, result ArchiveCheck) error {
	if c.JSON {
		if err := command.PrintPlainJSON(std.Out, result); err != nil {
			return err
		}
	} else {
		for _, line := range result.Damaged {
			fmt.Fprintln(std.Out, line)
		}
	}
	if len(result.Damaged) > 0 {
		return command.ErrSilent
	}
	std.Sayf("%s is whole: %s, up to sequence %d", result.Archive, events.FormatSize(result.Bytes), result.Seq)
	return nil
}
