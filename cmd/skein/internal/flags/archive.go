package flags

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
)

const (
	// ArchiveDir is the default directory of the log's archive, below the data directory.
	ArchiveDir = "archive"
	// ArchiveOff is the value of the flag that disables the archive.
	ArchiveOff = "off"
)

// ArchiveFlags say where the archive of the log is.
type ArchiveFlags struct {
	Archive string `help:"Archive of the log: a directory, s3://BUCKET/PREFIX, or off. By default DATA/archive, or off with --nats." placeholder:"TARGET"`
}

// Open opens the archive of the log. It returns nil if the archive is off. dir is the data
// directory; external reports whether the log is on external servers (--nats).
func (f *ArchiveFlags) Open(ctx context.Context, dir string, external bool) (bucket.Bucket, error) {
	target := f.Archive
	switch {
	case target == ArchiveOff, target == "" && external:
		return nil, nil
	case target == "":
		target = filepath.Join(dir, ArchiveDir)
	}
	b, err := bucket.Open(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("--archive: %w", err)
	}
	return b, nil
}

// Attach opens the archive of a log in a data directory, and makes the log read from the archive
// what its stream no longer has. It returns nil if there is no archive, and creates none.
func (f *ArchiveFlags) Attach(ctx context.Context, dir string, log *eventlog.Log) (*archive.Archive, error) {
	if f.Archive == "" {
		if _, err := os.Stat(filepath.Join(dir, ArchiveDir)); errors.Is(err, os.ErrNotExist) {
			return nil, nil //nolint:nilnil // Open would create the directory
		}
	}

	b, err := f.Open(ctx, dir, false)
	if b == nil || err != nil {
		return nil, err
	}
	archived, err := archive.Open(ctx, b, log.ID())
	if err != nil {
		return nil, fmt.Errorf("--archive: %w", err)
	}
	log.SetArchive(archived)
	return archived, nil
}
