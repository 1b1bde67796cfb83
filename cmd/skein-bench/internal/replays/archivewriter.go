package replays

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
)

// archiveWriter writes the envelopes of a generated log into an archive, with as many segments as
// they need. A segment is one of the files of the archive.
type archiveWriter struct {
	archive *archive.Archive
	segment *archive.Writer
	// start is the cursor before the first envelope.
	start events.Cursor
}

// newArchive makes an empty archive of a new log in a data directory.
func newArchive(ctx context.Context, data string) (bucket.Bucket, *archiveWriter, error) {
	target, err := bucket.NewDir(filepath.Join(data, "archive"))
	if err != nil {
		return nil, nil, err
	}
	var id events.LogID
	if _, err := rand.Read(id[:]); err != nil {
		return nil, nil, err
	}
	a, err := archive.Open(ctx, target, id)
	if err != nil {
		return nil, nil, err
	}
	return target, &archiveWriter{archive: a, segment: a.Writer(), start: events.Cursor{Log: id, Epoch: growthEpoch}}, nil
}

// add writes the next envelope. If the segment is full, add begins another one.
func (w *archiveWriter) add(ctx context.Context, env *events.Envelope) error {
	err := w.segment.Add(env)
	if !errors.Is(err, archive.ErrFull) {
		return err
	}

	// The full segment did not take the envelope.
	if err := w.seal(ctx); err != nil {
		return err
	}
	return w.segment.Add(env)
}

// seal ends the segment and begins the next one.
func (w *archiveWriter) seal(ctx context.Context) error {
	_, err := w.segment.Seal(ctx)
	w.segment = w.archive.Writer()
	return err
}

// finish ends the last segment. It returns an error unless the archive has all envelopes up to the
// sequence lastSeq.
func (w *archiveWriter) finish(ctx context.Context, lastSeq uint64) error {
	if err := w.seal(ctx); err != nil {
		return err
	}
	archived := w.archive.End().Seq
	if archived != lastSeq {
		return fmt.Errorf("%d of %d envelopes are archived", archived, lastSeq)
	}
	return nil
}
