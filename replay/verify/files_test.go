package verify_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/verify"
)

// damagedDisk is a disk on which the first block of each table is damaged from some moment on.
// Blocks that were read before are in the cache, so only a reader of the files in dir notices the
// damage.
type damagedDisk struct {
	vfs.FS
	dir string
}

func (r *damagedDisk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := r.FS.Open(name, opts...)
	if err == nil && r.dir != "" && strings.HasPrefix(name, r.dir) && strings.HasSuffix(name, ".sst") {
		f = damagedFile{f}
	}
	return f, err
}

type damagedFile struct{ vfs.File }

func (f damagedFile) ReadAt(p []byte, from int64) (int, error) {
	n, err := f.File.ReadAt(p, from)
	if at := 20 - from; at >= 0 && at < int64(n) {
		p[at] ^= 1
	}
	return n, err
}

// Rows that are read from the cache equal the log even if the tables on the disk are damaged. So a
// verification reads the tables, too, and one that does not read them reports that.
func TestDamagedFilesBehindTheCache(t *testing.T) {
	envs := memlog.NewWorld(1, 20).Envelopes(100)
	disk := &damagedDisk{FS: vfs.NewMem()}
	store := conformance.Open(t, disk, newProjection(0), store.Bounds{})
	t.Cleanup(func() { conformance.Close(t, store) })
	conformance.Fold(t, store, envs)

	o := verify.Options{
		FS: disk, Dir: "data/scratch", New: func() projections.Projection { return newProjection(0) }, Subscribe: memlog.New(envs...).Subscribe,
	}
	r, err := verify.Verify(t.Context(), store, o)
	if err != nil || !r.Equal {
		t.Fatalf("without damage, got %v and %v, expected an equal store", r, err)
	}
	if r.Damaged() || r.Files.Tables == 0 || r.Files.Bytes == 0 || !strings.Contains(r.String(), "are whole") {
		t.Fatalf("without damage, got %v with the files %+v, expected some whole tables", r, r.Files)
	}

	disk.dir = "data/scratch/files"
	if r, err = verify.Verify(t.Context(), store, o); err != nil || !r.Equal {
		t.Fatalf("with damaged tables, got %v and %v, expected equal rows", r, err)
	}
	if !r.Damaged() || len(r.Files.Damaged) != r.Files.Tables || !strings.Contains(r.String(), "\ndamaged: "+store.Dir()) {
		t.Errorf("with damaged tables, got %v, expected that all %d are damaged", r, r.Files.Tables)
	}

	o.Partitions = new(events.Partitions)
	o.Partitions.Add(1)
	if r, err = verify.Verify(t.Context(), store, o); err != nil || !strings.Contains(r.String(), "were not read: only some partitions") {
		t.Errorf("of some partitions, got %v and %v, expected a report that the tables were not read", r, err)
	}
}
