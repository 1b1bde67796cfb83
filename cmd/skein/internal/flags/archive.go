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
	Archive string `help:"Archive of the log: directory (DATA/archive), s3://BUCKET/PREFIX, or off (with --nats)." placeholder:"TARGET"`
}

// Open returns the bucket of the archive of a data directory; nil means that the archive is off. external reports whether the log is on
// external servers (--nats).
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

// Attach connects the log of a data directory with its archive, and returns the archive; nil means there is none.
func (f *ArchiveFlags) Attach(ctx context.Context, dir string, log *eventlog.Log) (*archive.Archive, error) {
	if f.Archive == "" {
		if _, err := os.Stat(filepath.Join(dir, ArchiveDir)); errors.Is(err, os.ErrNotExist) {
			return nil, nil //nolint:nilnil // opening it would create it
		}
	}
	b, err := f.Open(ctx, dir, false)
	if b == nil || err != nil {
		return nil, err
	}
	past, err := archive.Open(ctx, b, log.ID())
	if err != nil {
		return nil, fmt.Errorf("--archive: %w", err)
	}
	log.SetArchive(past)
	return past, nil
}
