package archiver

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

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
		f := &hidingBucket{Bucket: b}
		w := openLog(t, dir, f)
		defer func() { w.stop() }()
		a, stop := w.startArchiver(Options{SegmentAge: time.Minute, Retention: time.Nanosecond})
		segments := func() (n int) {
			for _, c := range w.archive.Info().Classes {
				n += c.Segments
			}
			return n
		}
		files := func() int {
			objects, err := b.List(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			return len(objects)
		}
		published, largest := 0, 0
		for largest <= segments() { // until some are merged
			largest = segments()
			w.publish(1, 5*time.Minute)
			letTimePass(2 * time.Minute)
			published++
		}
		if n, end := segments(), w.archive.End().Seq; int(end) != published || n > 8 || published < 8 || published > 40 {
			t.Errorf("%d files up to sequence %d of %d", n, end, published)
		}
		want := w.readEvents(uint64(published))
		if n, kept := segments(), files(); kept < n+largest-8 {
			t.Errorf("%d files are kept of %d: those that were merged are removed at once", kept, n)
		}
		letTimePass(keepMergedFor + 2*pollInterval)
		const others = 6 // the manifest and the event ids of the horizon
		if n, kept := segments(), files(); kept > n+others {
			t.Errorf("%d files are kept of %d", kept, n)
		}
		if got := w.readEvents(uint64(published)); !reflect.DeepEqual(got, want) {
			t.Errorf("through merged segments the log is\n%+v, was\n%+v", got, want)
		}
		if err := w.archive.Check(t.Context(), nil); err != nil {
			t.Error(err)
		}

		// A segment that cannot be read stops merging, not archiving.
		before := segments()
		f.hideObjects("archive/facts-")
		w.publish(30, 5*time.Minute)
		letTimePass(2 * time.Minute)
		if st := a.Status(); !st.Running || st.Err != nil || int(w.archive.End().Seq) != published+30 || segments() != before+60 {
			t.Errorf("%+v, %d files up to sequence %d, were %d", st, segments(), w.archive.End().Seq, before)
		}
		f.hideObjects("")
		letTimePass(mergeRetryDelay + 2*pollInterval)
		if n := segments(); n > before+32 {
			t.Errorf("%d files, were %d", n, before)
		}
		if err := errors.Join(stop(), w.archive.Check(t.Context(), nil)); err != nil {
			t.Error(err)
		}
	})
}

// hidingBucket is a bucket that hides some objects that are older than a minute.
type hidingBucket struct {
	bucket.Bucket

	mu      sync.Mutex
	prefix  string
	written map[string]time.Time
}

func (g *hidingBucket) hideObjects(prefix string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.prefix = prefix
}

func (g *hidingBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.written == nil {
		g.written = map[string]time.Time{}
	}
	g.written[name] = time.Now()
	return g.Bucket.Put(ctx, name, r, size)
}

func (g *hidingBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.prefix != "" && strings.HasPrefix(name, g.prefix) && time.Since(g.written[name]) > time.Minute {
		return nil, bucket.ErrNotFound
	}
	return g.Bucket.Get(ctx, name, offset, length)
}
