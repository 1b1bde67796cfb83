package main

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
	// archiveDir is where the archive of the log is below the data directory, unless another place is named.
	archiveDir = "archive"
	// archiveOff is the target that is none.
	archiveOff = "off"
)

// archiveFlags say where the archive of the log is.
type archiveFlags struct {
	Archive string `help:"Archive of the log: directory (DATA/archive), s3://BUCKET/PREFIX, or off (with --nats)." placeholder:"TARGET"`
}

// open returns the bucket of the archive of a data directory; nil: there is to be none. The log is external with --nats.
func (f *archiveFlags) open(ctx context.Context, dir string, external bool) (bucket.Bucket, error) {
	target := f.Archive
	switch {
	case target == archiveOff, target == "" && external:
		return nil, nil
	case target == "":
		target = filepath.Join(dir, archiveDir)
	}
	b, err := bucket.Open(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("--archive: %w", err)
	}
	return b, nil
}

// past has the log of a data directory read its archive, and returns it; nil: there is none.
func (f *archiveFlags) past(ctx context.Context, dir string, log *eventlog.Log) (*archive.Archive, error) {
	if f.Archive == "" {
		if _, err := os.Stat(filepath.Join(dir, archiveDir)); errors.Is(err, os.ErrNotExist) {
			return nil, nil //nolint:nilnil // to open it would make it
		}
	}
	b, err := f.open(ctx, dir, false)
	if b == nil || err != nil {
		return nil, err
	}
	past, err := archive.Open(ctx, b, log.ID())
	if err != nil {
		return nil, fmt.Errorf("--archive: %w", err)
	}
	log.SetPast(past)
	return past, nil
}
