package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// misroutedTally is a tally that delivers every event to the partition of "ann".
type misroutedTally struct{ *tally.Tally }

func (misroutedTally) Route(_ *events.Event, to *events.Partitions) { to.AddHome("ann") }

// TestFoldMayNotWriteForeignPartitions checks that a projection stops if its fold writes a row of a
// partition that the store does not hold.
func TestFoldMayNotWriteForeignPartitions(t *testing.T) {
	var ann events.Partitions
	ann.AddHome("ann")
	s := storetest.OpenTally(t, store.Options{FS: vfs.NewMem(), Projection: misroutedTally{tally.New()}, Partitions: &ann})
	defer conformance.Close(t, s)
	follow := func(user string) []events.Event {
		return []events.Event{{Kind: events.UserFollowed, User: user, Peer: "dee"}}
	}
	envs := storetest.Envelopes(follow("ann"), follow("bob"))
	if err := s.Fold(envs[:1]); err != nil {
		t.Fatal(err)
	}
	if err := s.Fold(envs[1:]); err == nil || !strings.Contains(err.Error(), "a partition that the store does not hold") {
		t.Errorf("fold of a row of bob into a store that holds ann: got error %v, want one that says so", err)
	}
}

// TestStoreIsNotOpenedForOtherPartitions checks that a store is not opened with other partitions
// than it holds.
func TestStoreIsNotOpenedForOtherPartitions(t *testing.T) {
	fs := vfs.NewMem()
	var ann events.Partitions
	ann.AddHome("ann")
	conformance.Close(t, storetest.OpenTally(t, store.Options{FS: fs, Projection: tally.New(), Partitions: &ann}))
	conformance.Close(t, storetest.OpenTally(t, store.Options{FS: fs, Projection: tally.New(), Partitions: &ann}))

	_, err := store.Open(store.Options{FS: fs, Dir: "data", Projection: tally.New()})
	if !errors.Is(err, projections.ErrPartial) {
		t.Errorf("open for all partitions: got error %v, want %v", err, projections.ErrPartial)
	}

	var bob events.Partitions
	bob.AddHome("bob")
	_, err = store.Open(store.Options{FS: fs, Dir: "data", Projection: tally.New(), Partitions: &bob})
	if err == nil || !strings.Contains(err.Error(), "the set of partitions was "+ann.String()+", is "+bob.String()) {
		t.Errorf("open for other partitions: got error %v, want one that names both sets", err)
	}
}
