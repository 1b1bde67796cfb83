package replaycmd

import (
	"path/filepath"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// TestPositionsOfNodeStoresAreRead checks that a restore can read the positions of stores that hold
// only some partitions, as those of a node do.
func TestPositionsOfNodeStoresAreRead(t *testing.T) {
	var c archiveRestoreCmd
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse([]string{"--data", t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	settings, err := c.Settings()
	if err != nil {
		t.Fatal(err)
	}

	envs := histories.Envelopes([]events.Event{{Kind: events.UserFollowed, User: "ann", Peer: "bob", Seq: 1, Time: 1}})
	var held events.Partitions
	held.AddHome("ann")
	want := map[string]events.Cursor{}
	for _, newProjection := range all.Constructors(settings) {
		p := newProjection()
		s, err := store.Open(store.Options{
			Dir: filepath.Join(c.Data, service.StoresDir), Projection: p, Partitions: &held,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Fold(envs); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		want[p.Name()] = envs[0].Cursor
	}

	got, err := c.readStorePositions()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("positions of the stores (-want +got):\n%s", diff)
	}
}
