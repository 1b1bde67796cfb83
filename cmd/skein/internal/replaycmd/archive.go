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

// archiveCmd has the commands for the archive of the log. They read the archive themselves, and need no service.
type archiveCmd struct {
	Status  archiveStatusCmd  `cmd:"" help:"Show what the archive of the log holds."`
	Check   archiveCheckCmd   `cmd:"" help:"Read all of the archive and compare it with its checksums."`
	Restore archiveRestoreCmd `cmd:"" help:"Make a lost or damaged log again from its archive. The service must not be running."`
}

// archiveLocationFlags name an existing archive.
type archiveLocationFlags struct {
	flags.ArchiveFlags `embed:""`

	Data string `help:"Data directory of the service." default:"./skein-data" type:"path" placeholder:"DIR"`
}

// openBucket returns the bucket of the archive. Unlike serve, it does not create its directory.
func (f *archiveLocationFlags) openBucket(ctx context.Context, external bool) (bucket.Bucket, error) {
	dir := f.Archive
	if dir == "" {
		dir = filepath.Join(f.Data, flags.ArchiveDir)
	}
	if _, err := os.Stat(dir); err != nil && !strings.Contains(dir, "://") && dir != flags.ArchiveOff && (f.Archive != "" || !external) {
		return nil, fmt.Errorf("there is no archive: %w", err)
	}
	b, err := f.Open(ctx, f.Data, external)
	if err == nil && b == nil {
		err = command.Usagef("--archive TARGET: where is the archive?")
	}
	return b, err
}

// openArchive opens the archive, whatever log it belongs to.
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

// ArchiveStatus is the output for programs.
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

type archiveClass struct {
	Class    string `json:"class"`
	Segments int    `json:"segments"`
	Bytes    uint64 `json:"bytes"`
	Events   uint64 `json:"events"`
}

type previousEpoch struct {
	Epoch uint32 `json:"epoch"`
	Last  uint64 `json:"last"`
}

// Run prints the contents of the manifest.
func (c *archiveStatusCmd) Run(ctx context.Context, std *command.Streams) error {
	a, err := c.openArchive(ctx)
	if err != nil {
		return err
	}
	info := a.Info()
	s := ArchiveStatus{
		Archive: info.Location, Log: fmt.Sprintf("%x", info.End.Log), Epoch: info.Epoch, Seq: info.End.Seq,
		Time: info.End.LastTime.Time().UTC().Format(time.RFC3339Nano), Envelopes: info.Envelopes,
		Classes: []archiveClass{}, Predecessors: []previousEpoch{},
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

// ArchiveCheck is the output for programs.
type ArchiveCheck struct {
	Archive string   `json:"archive"`
	Seq     uint64   `json:"seq"`
	Bytes   uint64   `json:"bytes"`
	Damaged []string `json:"damaged"`
}

// Run reads the whole archive. It returns an error if something is damaged.
func (c *archiveCheckCmd) Run(ctx context.Context, std *command.Streams) error {
	a, err := c.openArchive(ctx)
	if errors.Is(err, archive.ErrDamaged) { // the manifest
		return c.printResult(std, ArchiveCheck{Damaged: []string{err.Error()}})
	}
	if err != nil {
		return err
	}
	var at replay.Progress
	at.StartPhase(replay.Checking, "bytes", 0)
	shown := command.ShowProgress(std.Err, "check", &at)
	defer shown()
	done := ArchiveCheck{Archive: a.Info().Location, Damaged: []string{}}
	err = a.Check(ctx, func(read, total uint64) {
		at.SetTotal(total)
		at.SetDone(read)
		done.Bytes = read
	})
	shown()
	done.Seq = a.End().Seq
	if err != nil && !errors.Is(err, archive.ErrDamaged) || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if err != nil {
		done.Damaged = strings.Split(err.Error(), "\n")
	}
	return c.printResult(std, done)
}

func (c *archiveCheckCmd) printResult(std *command.Streams, done ArchiveCheck) error {
	if c.JSON {
		if err := command.PrintPlainJSON(std.Out, done); err != nil {
			return err
		}
	} else {
		for _, what := range done.Damaged {
			fmt.Fprintln(std.Out, what)
		}
	}
	if len(done.Damaged) > 0 {
		return command.ErrSilent
	}
	std.Sayf("%s is whole: %s, up to sequence %d", done.Archive, events.FormatSize(done.Bytes), done.Seq)
	return nil
}
