package projections_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/conformance"
	"github.com/skein-feed/skein/projections/internal/tally"
)

func TestPartitions(t *testing.T) {
	var some projections.Partitions
	some.Add(0)
	some.Add(255)
	some.AddHome("ann")
	ann := events.ShardOf("ann").Partition()
	for p := range events.NumPartitions {
		if want := p == 0 || p == 255 || p == int(ann); some.Has(uint8(p)) != want {
			t.Errorf("partition %d: %v", p, !want)
		}
	}
	if some.Len() != 3 {
		t.Errorf("%d partitions", some.Len())
	}
	if parsed, err := projections.ParsePartitions(some.String()); err != nil || parsed != some {
		t.Errorf("%s, %v, want %s", &parsed, err, &some)
	}
	for _, text := range []string{"", "00", some.String() + "00", "x" + some.String()[1:]} {
		if parsed, err := projections.ParsePartitions(text); err == nil {
			t.Errorf("%q: %s", text, &parsed)
		}
	}
	var other projections.Partitions
	other.Add(1)
	if some.Meets(&other) || !some.Meets(&some) {
		t.Error("what has a partition in common with what is wrong")
	}
	if other.AddAll(); other != projections.AllPartitions() || other.Len() != events.NumPartitions {
		t.Errorf("all are %s", &other)
	}
	var first projections.Partitions
	first.Add(1)
	if want := "4" + strings.Repeat("0", 63); first.String() != want {
		t.Errorf("%s, want %s", &first, want)
	}
}

// careless is a tally that delivers every event to the partition of "ann".
type careless struct{ *tally.Tally }

func (careless) Route(_ *events.Event, to *projections.Partitions) { to.AddHome("ann") }

// TestNotHeld: a fold that writes a row of a home that is not held stops.
func TestNotHeld(t *testing.T) {
	var ann projections.Partitions
	ann.AddHome("ann")
	s := open(t, projections.Options{FS: vfs.NewMem(), Projection: careless{tally.New()}, Partitions: &ann})
	defer conformance.Close(t, s)
	follow := func(user string) []events.Event {
		return []events.Event{{Kind: events.UserFollowed, User: user, Peer: "dee"}}
	}
	envs := logOf(follow("ann"), follow("bob"))
	if err := s.Fold(envs[:1]); err != nil {
		t.Fatal(err)
	}
	if err := s.Fold(envs[1:]); err == nil || !strings.Contains(err.Error(), "a home that is not held") {
		t.Errorf("a row of bob is written where ann is held: %v", err)
	}
}

// TestOtherPartitions: a store is not opened as one of other partitions.
func TestOtherPartitions(t *testing.T) {
	fs := vfs.NewMem()
	var ann projections.Partitions
	ann.AddHome("ann")
	conformance.Close(t, open(t, projections.Options{FS: fs, Projection: tally.New(), Partitions: &ann}))
	conformance.Close(t, open(t, projections.Options{FS: fs, Projection: tally.New(), Partitions: &ann}))
	_, err := projections.Open(projections.Options{FS: fs, Dir: "data", Projection: tally.New()})
	if !errors.Is(err, projections.ErrPartial) {
		t.Errorf("%v", err)
	}
	var bob projections.Partitions
	bob.AddHome("bob")
	_, err = projections.Open(projections.Options{FS: fs, Dir: "data", Projection: tally.New(), Partitions: &bob})
	if err == nil || !strings.Contains(err.Error(), "the set of partitions was "+ann.String()+", is "+bob.String()) {
		t.Errorf("%v", err)
	}
}
