package build_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/graph"
)

// TestTemporaryStoreIsCompressedLess checks that the tables of a temporary store are compressed
// less, also if another process finishes the build.
func TestTemporaryStoreIsCompressedLess(t *testing.T) {
	newGraph := func() projections.Projection { return graph.New() }
	envs := newSkewedLog(20_000, 5000, func(user, other string) events.Event {
		return events.Event{Kind: events.UserFollowed, User: user, Peer: other}
	})
	buildSize := func(temporary bool) (size int64) {
		fs := vfs.NewMem()
		b, err := build.New(build.Options{FS: fs, Dir: "graph", New: newGraph, Temporary: temporary})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Add(envs); err != nil {
			t.Fatal(err)
		}

		h, err := b.HandOver()
		if err != nil {
			t.Fatal(err)
		}
		if err := build.TakeOver(build.Options{FS: fs, New: newGraph}, h).Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}

		names, err := fs.List("graph")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			info, err := fs.Stat(fs.PathJoin("graph", name))
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, ".sst") {
				size += info.Size()
			}
		}
		return size
	}
	permanent := buildSize(false)
	temporary := buildSize(true)
	if permanent == 0 || temporary < permanent*21/20 {
		t.Errorf("got %d bytes in a permanent store and %d in a temporary one, want at least 5 %% more", permanent, temporary)
	}
}
