package archiver

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events/bucket"
)

// Small segments are merged, their files are removed when no reader needs them any more, and
// readers do not notice.
func TestSmallSegmentsAreMerged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		b, err := bucket.NewDir(filepath.Join(dir, "bucket"))
		if err != nil {
			t.Fatal(err)
		}
		hiding := &hidingBucket{Bucket: b}
		w := openLog(t, dir, hiding)
		defer func() { w.stop() }()
		a, stop := w.startArchiver(Options{SegmentAge: time.Minute, Retention: time.Nanosecond})

		countSegments := func() (n int) {
			for _, c := range w.archive.Info().Classes {
				n += c.Segments
			}
			return n
		}
		countFiles := func() int {
			objects, err := b.List(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			return len(objects)
		}

		// Publish until the number of segments falls, because some were merged.
		published := 0
		mostSegments := 0
		for mostSegments <= countSegments() {
			mostSegments = countSegments()
			w.publish(1, 5*time.Minute)
			letTimePass(2 * time.Minute)
			published++
		}
		if published < 8 || published > 40 {
			t.Errorf("segments were merged after %d envelopes, expected 8 to 40", published)
		}
		if end := w.archive.End().Seq; int(end) != published {
			t.Errorf("the archive ends at sequence %d, expected %d", end, published)
		}
		if n := countSegments(); n > 8 {
			t.Errorf("got %d segments after merging, expected at most 8", n)
		}
		want := w.readEvents(uint64(published))

		// Merged files stay for a while, for readers that do not know of the merge.
		if segments, files := countSegments(), countFiles(); files < segments+mostSegments-8 {
			t.Errorf("right after the merge of %d segments: got %d files for %d segments, expected at least %d",
				mostSegments, files, segments, segments+mostSegments-8)
		}
		letTimePass(keepMergedFor + 2*pollInterval)
		const others = 6 // the manifest and the event ids of the horizon
		if segments, files := countSegments(), countFiles(); files > segments+others {
			t.Errorf("%v after the merge: got %d files for %d segments, expected at most %d",
				keepMergedFor, files, segments, segments+others)
		}
		if diff := cmp.Diff(want, w.readEvents(uint64(published))); diff != "" {
			t.Errorf("the log differs after the merged files were removed (-before +after):\n%s", diff)
		}
		if err := w.archive.Check(t.Context(), nil); err != nil {
			t.Errorf("check of the archive: got %v, expected no error", err)
		}

		// A segment that cannot be read stops merging, not archiving.
		segmentsBefore := countSegments()
		hiding.hideObjects("archive/facts-")
		w.publish(30, 5*time.Minute)
		letTimePass(2 * time.Minute)
		if status := a.Status(); !status.Running || status.Err != nil {
			t.Errorf("while segments cannot be read: got status %+v, expected a running archiver without an error", status)
		}
		if end := w.archive.End().Seq; int(end) != published+30 {
			t.Errorf("while segments cannot be read: the archive ends at sequence %d, expected %d", end, published+30)
		}
		if n := countSegments(); n != segmentsBefore+60 {
			t.Errorf("while segments cannot be read: got %d segments, expected %d", n, segmentsBefore+60)
		}

		hiding.hideObjects("")
		letTimePass(mergeRetryDelay + 2*pollInterval)
		if n := countSegments(); n > segmentsBefore+32 {
			t.Errorf("when segments can be read again: got %d segments, expected at most %d", n, segmentsBefore+32)
		}
		if err := errors.Join(stop(), w.archive.Check(t.Context(), nil)); err != nil {
			t.Error(err)
		}
	})
}

// hidingBucket is a bucket that hides the objects with a prefix that are older than a minute.
type hidingBucket struct {
	bucket.Bucket

	mu        sync.Mutex
	prefix    string // the prefix of hidden objects; empty hides none
	writtenAt map[string]time.Time
}

// hideObjects hides objects with this prefix from now on. An empty prefix hides none.
func (b *hidingBucket) hideObjects(prefix string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prefix = prefix
}

func (b *hidingBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writtenAt == nil {
		b.writtenAt = map[string]time.Time{}
	}
	b.writtenAt[name] = time.Now()
	return b.Bucket.Put(ctx, name, r, size)
}

func (b *hidingBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.prefix != "" && strings.HasPrefix(name, b.prefix) && time.Since(b.writtenAt[name]) > time.Minute {
		return nil, bucket.ErrNotFound
	}
	return b.Bucket.Get(ctx, name, offset, length)
}
