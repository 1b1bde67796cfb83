package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

const tallyDir = "data/tally/000001"

// makeEmptyStore makes the files of an empty store, as a release whose new stores have the format
// does.
func makeEmptyStore(t *testing.T, fs store.FS, format pebble.FormatMajorVersion) {
	t.Helper()
	if err := fs.MkdirAll(tallyDir, 0o755); err != nil {
		t.Fatal(err)
	}
	db, err := pebble.Open(tallyDir, &pebble.Options{
		FS: fs, FormatMajorVersion: format, DisableWAL: true, Logger: silentLogger{},
		Merger: store.EngineMerger(tally.New()),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// checkStoreFormat checks the format of the files in a directory.
func checkStoreFormat(t *testing.T, fs store.FS, dir string, want pebble.FormatMajorVersion) {
	t.Helper()
	got, err := store.FormatOf(fs, dir)
	if err != nil || got.Engine != uint32(want) {
		t.Errorf("%s: got format %d, error %v, want %d", dir, got.Engine, err, want)
	}
}

// TestOpeningKeepsFormat checks that a store of an earlier release can be folded, read, copied and
// reopened, and keeps the format of that release until it is finalized. It must then have the same
// rows, and continue to fold.
func TestOpeningKeepsFormat(t *testing.T) {
	newest := pebble.FormatMajorVersion(store.NewestFormat().Engine)
	for _, format := range []pebble.FormatMajorVersion{
		pebble.FormatMinSupported, pebble.FormatColumnarBlocks, pebble.FormatTableFormatV6, newest,
	} {
		t.Run(fmt.Sprint(format), func(t *testing.T) {
			fs := vfs.NewMem()
			makeEmptyStore(t, fs, format)

			envs := tally.History(7, 300)
			bounds := store.Bounds{FlushBytes: 8 << 10, BatchBytes: 1 << 10}
			want := foldStraight(t, envs)

			// Fold, copy and reopen the store, which keeps its format.
			for from, to := 0, 100; from < 300; from, to = from+100, to+100 {
				s := conformance.Open(t, fs, tally.New(), bounds)
				conformance.Fold(t, s, envs[from:to])
				if got := s.Status().Format; got != uint32(format) {
					t.Errorf("status: got format %d, want %d", got, format)
				}
				copied := fmt.Sprintf("copy-%d", to)
				if _, err := s.Checkpoint(t.Context(), copied); err != nil {
					t.Fatal(err)
				}
				checkStoreFormat(t, fs, copied, format)
				conformance.Close(t, s)
				checkStoreFormat(t, fs, tallyDir, format)
			}

			// Finalizing moves the store to the newest format. A dry run only says so, and a second
			// call changes nothing.
			list := []projections.Projection{tally.New()}
			for _, dryRun := range []bool{true, false, false} {
				done, err := store.FinalizeFormat(fs, "data", list, dryRun)
				if err != nil || len(done) != 1 {
					t.Fatalf("dry run %v: got %+v, error %v, want one store", dryRun, done, err)
				}
				if done[0].To != uint32(newest) || done[0].Name != "tally" || done[0].Generation != 1 {
					t.Fatalf("dry run %v: got %+v, want generation 1 of tally moved to %d", dryRun, done, newest)
				}
				if dryRun {
					checkStoreFormat(t, fs, tallyDir, format)
				}
			}
			checkStoreFormat(t, fs, tallyDir, newest)

			// The finalized store has the same rows, and continues to fold.
			s := conformance.Open(t, fs, tally.New(), bounds)
			conformance.RowsOf(t, s).MustEqual(t, want, "finalized")
			more := tally.History(7, 400)
			conformance.Fold(t, s, more[300:])
			conformance.RowsOf(t, s).MustEqual(t, foldStraight(t, append(envs, more[300:]...)), "after another fold")
			conformance.Close(t, s)
			checkStoreFormat(t, fs, tallyDir, newest)
		})
	}
}

// TestNewStoresHavePinnedFormat pins the format of new stores, which the previous release must be
// able to open, and the newest format. Raise the first number only once the previous release knows
// the format, and the second with the storage engine. docs/upgrading.md has both numbers.
func TestNewStoresHavePinnedFormat(t *testing.T) {
	if made, newest := store.Format().Engine, store.NewestFormat().Engine; made != 21 || newest != 24 {
		t.Errorf("got format %d of new stores and newest format %d, want 21 and 24", made, newest)
	}
	fs := vfs.NewMem()
	s := conformance.Open(t, fs, tally.New(), store.Bounds{})
	conformance.Close(t, s)
	checkStoreFormat(t, fs, tallyDir, pebble.FormatMajorVersion(store.Format().Engine))
}

// TestFinalizeMovesAllStoresOrNone checks that FinalizeFormat moves no store if one of them is
// open, and that its error says so.
func TestFinalizeMovesAllStoresOrNone(t *testing.T) {
	fs := vfs.NewMem()
	s := storetest.OpenTally(t, store.Options{FS: fs})
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	_, err := store.FinalizeFormat(fs, "data", []projections.Projection{tally.New()}, false)
	if !errors.Is(err, projections.ErrInUse) {
		t.Errorf("finalize an open store: got error %v, want %v", err, projections.ErrInUse)
	}
	checkStoreFormat(t, fs, tallyDir, pebble.FormatMajorVersion(store.Format().Engine))
}

// TestStoreOfLaterReleaseIsRefused checks that a store that a later release has finalized is
// refused with an error that says what to do. It must not be taken for an empty store.
func TestStoreOfLaterReleaseIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	makeEmptyStore(t, fs, pebble.FormatNewest)

	// Rename the marker of the format, so that it names a later one.
	names, err := fs.List(tallyDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "marker.format-version.") {
			later := strings.TrimSuffix(name, pebble.FormatNewest.String()) + "099"
			if err := fs.Rename(fs.PathJoin(tallyDir, name), fs.PathJoin(tallyDir, later)); err != nil {
				t.Fatal(err)
			}
		}
	}

	for _, readOnly := range []bool{false, true} {
		s, err := store.Open(store.Options{FS: fs, Dir: "data", Projection: tally.New(), ReadOnly: readOnly})
		if !errors.Is(err, projections.ErrFormat) || !strings.Contains(err.Error(), "finalize-upgrade") {
			t.Errorf("read only %v: got store %v, error %v, want %v", readOnly, s, err, projections.ErrFormat)
		}
	}
	if _, err := store.FinalizeFormat(fs, "data", []projections.Projection{tally.New()}, false); !errors.Is(err, projections.ErrFormat) {
		t.Errorf("finalize: got error %v, want %v", err, projections.ErrFormat)
	}
}
