package conformance

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/model/histories"
)

// TestPartitions: of every history, a fold for any set of partitions leaves what the set has of the fold for all (I13).
func TestPartitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		envs, s, bounds := drawPartitions(t)
		for i, p := range all.All(all.Settings{}) {
			newProjection := func() projections.Projection { return all.All(all.Settings{})[i] }
			straight := fold(t, p, envs, projections.Bounds{}, nil)
			if diff := partitionsDiffer(t, newProjection, envs, &s, straight, bounds); diff != "" {
				t.Fatalf("%s, partitions %s:\n%s", p.Name(), &s, diff)
			}
		}
	})
}

func drawPartitions(t *rapid.T) ([]*events.Envelope, projections.Partitions, projections.Bounds) {
	opt := rapid.SampledFrom([]histories.Options{{}, {Feeds: true}, {Plays: true}}).Draw(t, "kind")
	envs := histories.Envelopes(histories.History(t, opt))
	s := projections.AllPartitions()
	if rapid.IntRange(0, 9).Draw(t, "all") > 0 {
		s = setOf(rapid.Uint64().Draw(t, "set"))
	}
	return envs, s, rapid.SampledFrom([]projections.Bounds{{}, {BatchBytes: 1}}).Draw(t, "bounds")
}

// TestCrossing: what still crosses partitions only becomes less.
func TestCrossing(t *testing.T) {
	want := map[string]int{"graph": 19, "inbox": 32, "counters": 24}
	for _, p := range all.All(all.Settings{}) {
		var tags []projections.Tag
		if c, ok := p.(projections.Crossing); ok {
			tags = c.Crossing()
		}
		if len(tags) != want[p.Name()] {
			t.Errorf("%d tags of %s cross partitions: %v, not %d", len(tags), p.Name(), tags, want[p.Name()])
		}
	}
}

// ends keeps a follow at both ends, and what was liked with the item.
type ends struct{}

const (
	endOut   projections.Tag = 0xf0 // A B: A follows B
	endIn    projections.Tag = 0xf1 // B A: the same
	endLiked projections.Tag = 0xf2 // i A: A likes i
)

func (ends) Name() string    { return "ends" }
func (ends) Version() uint32 { return 1 }

func (ends) Kinds() []events.Kind {
	return []events.Kind{events.UserFollowed, events.UserUnfollowed, events.Liked}
}

func (ends) Route(ev *events.Event, to *projections.Partitions) {
	if ev.Kind == events.Liked {
		to.AddHome(ev.Item)
		return
	}
	to.AddHome(ev.User)
	to.AddHome(ev.Peer)
}

func (ends) Apply(ev events.Event, b *projections.Batch) error {
	write := func(tag projections.Tag, home, other string) {
		key := projections.AppendKey(nil, tag, home, other)
		switch {
		case !b.Holds(home):
		case ev.Kind == events.UserUnfollowed:
			b.Delete(key)
		default:
			b.Set(key, nil)
		}
	}
	if ev.Kind == events.Liked {
		write(endLiked, ev.Item, ev.User)
		return nil
	}
	write(endOut, ev.User, ev.Peer)
	write(endIn, ev.Peer, ev.User)
	return nil
}

// TestToyProjection: this file has all that a projection is, and the suite takes it as it is. Its rows need a range of tags, and a line in
// package all would run it.
func TestToyProjection(t *testing.T) {
	Run(t, Case{
		New: func() projections.Projection { return ends{} }, Tags: TagRange{First: endOut, Last: endLiked},
		Histories: []History{
			{Name: "follows", Envelopes: histories.Envelopes(histories.Fixed(0, 300))},
			{Name: "likes", Envelopes: histories.Envelopes(histories.FixedFeeds(0, 300))},
		},
	})
}

// TestTwoEnds: a fold that writes at both ends of an edge, each where it is held, keeps the law, and so do what it is told by the
// runtime: offsets, rejects and the position.
func TestTwoEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		envs, s, bounds := drawPartitions(t)
		newEnds := func() projections.Projection { return ends{} }
		straight := fold(t, ends{}, envs, projections.Bounds{}, nil)
		if diff := partitionsDiffer(t, newEnds, envs, &s, straight, bounds); diff != "" {
			t.Fatalf("partitions %s:\n%s", &s, diff)
		}
	})
}
