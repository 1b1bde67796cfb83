package conformance

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// TestEachPartitionIsFoldOfItsEvents checks for every history and any set of partitions that a fold
// for the set makes the rows that the set has in a fold for all (I13).
func TestEachPartitionIsFoldOfItsEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		envs, s, bounds := drawPartitions(t)
		for i, p := range all.All(smallSettings()) {
			newProjection := func() projections.Projection { return all.All(smallSettings())[i] }
			straight := foldPartitions(t, p, envs, store.Bounds{}, nil)
			if diff := diffPartitions(t, newProjection, envs, &s, straight, bounds); diff != "" {
				t.Fatalf("rows of %s in the partitions %s differ from those of a fold for all:\n%s", p.Name(), &s, diff)
			}
		}
	})
}

// TestBuildOfSomePartitionsEqualsFold checks for every history and any set of partitions that a
// build for the set makes the same rows as a fold for it (I13).
func TestBuildOfSomePartitionsEqualsFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		envs, s, _ := drawPartitions(t)
		for i, p := range all.All(smallSettings()) {
			newProjection := func() projections.Projection { return all.All(smallSettings())[i] }
			if diff := diffBuild(t, newProjection, envs, s); diff != "" {
				t.Fatalf("rows of %s in the partitions %s differ between a build and a fold:\n%s", p.Name(), &s, diff)
			}
		}
	})
}

// drawPartitions draws a history, a set of partitions and bounds of a store.
func drawPartitions(t *rapid.T) ([]*events.Envelope, events.Partitions, store.Bounds) {
	opt := rapid.SampledFrom([]histories.Options{{}, {Feeds: true}, {Plays: true}}).Draw(t, "kind")
	envs := histories.Envelopes(histories.History(t, opt))
	s := events.AllPartitions()
	if rapid.IntRange(0, 9).Draw(t, "all") > 0 {
		s = randomPartitions(rapid.Uint64().Draw(t, "set"))
	}
	return envs, s, rapid.SampledFrom([]store.Bounds{{}, {BatchBytes: 1}}).Draw(t, "bounds")
}

// edgeEnds is a projection that keeps a follow at both of its ends, and a like at the item. A row
// at one home can also be found by the id of the other end: in a region, or with one seek per
// partition.
type edgeEnds struct{}

const (
	endOut   projections.Tag = 0xf0 // A B: A follows B
	endIndex projections.Tag = 0xf1 // B part(A) A: the same, in a region
	endIn    projections.Tag = 0xf2 // part(B) A B: the same, with B
	endList  projections.Tag = 0xf3 // B A: the same, so that B finds it
	endLiked projections.Tag = 0xf4 // i A: A likes i
	endGone  projections.Tag = 0xf5 // hash(A), of the store as a whole: A was deleted
)

func (edgeEnds) Name() string    { return "ends" }
func (edgeEnds) Version() uint32 { return 1 }

func (edgeEnds) Kinds() []events.Kind {
	return []events.Kind{events.UserFollowed, events.UserUnfollowed, events.Reacted, events.UserDeleted}
}

func (edgeEnds) Route(ev *events.Event, to *events.Partitions) {
	switch ev.Kind {
	case events.UserDeleted:
		to.AddAll()
	case events.Reacted:
		to.AddHome(ev.Item)
	default:
		to.AddHome(ev.User)
		to.AddHome(ev.Peer)
	}
}

// Regions implements [projections.Regional].
func (edgeEnds) Regions() []projections.Tag { return []projections.Tag{endIndex} }

// RegionHome implements [projections.Regional].
func (edgeEnds) RegionHome(key []byte) (uint8, bool) {
	if projections.Tag(key[2]) != endIndex {
		return 0, false
	}
	_, rest, err := events.CutID(key[3:])
	return rest[0], err == nil
}

// Apply writes or deletes the rows of an edge at both of its ends, each if its home is held.
func (edgeEnds) Apply(ev events.Event, b *projections.Batch) error {
	write := func(home string, key []byte) {
		switch {
		case !b.Holds(home):
		case ev.Kind == events.UserUnfollowed:
			b.Delete(key)
		default:
			b.Set(key, nil)
		}
	}

	switch ev.Kind {
	case events.UserDeleted:
		return deleteEdges(ev.User, b)
	case events.Reacted:
		write(ev.Item, projections.AppendKey(nil, endLiked, ev.Item, ev.User))
		return nil
	}
	write(ev.User, projections.AppendKey(nil, endOut, ev.User, ev.Peer))
	write(ev.User, endIndexKey(ev.Peer, ev.User))
	write(ev.Peer, endInKey(events.ShardOf(ev.Peer).Partition(), ev.User, ev.Peer))
	write(ev.Peer, projections.AppendKey(nil, endList, ev.Peer, ev.User))
	return nil
}

func endIndexKey(peer, user string) []byte {
	key := projections.AppendKey(nil, endIndex, peer)
	return events.AppendID(append(key, events.ShardOf(user).Partition()), user)
}

func endInKey(partition uint8, ids ...string) []byte {
	key := projections.AppendPartition(nil, partition, endIn)
	for _, id := range ids {
		key = events.AppendID(key, id)
	}
	return key
}

// deleteEdges deletes the edges of a user, at both ends, each if it is held.
func deleteEdges(user string, b *projections.Batch) error {
	hash := b.KeyedHash(user)
	b.Set(append(projections.AppendPrefix(nil, projections.StoreShard, endGone), hash[:]...), nil)

	// eachRow calls do for each row with a prefix, with the other end of its edge.
	eachRow := func(prefix []byte, do func(key []byte, other string)) error {
		it := b.Iter(prefix, projections.PrefixEnd(prefix))
		for it.Next() {
			key := bytes.Clone(it.Key())
			rest := key[len(prefix):]
			if projections.Tag(key[2]) == endIndex {
				rest = rest[1:]
			}
			other, _, err := events.CutID(rest)
			if err != nil {
				return errors.Join(err, it.Close())
			}
			do(key, other)
		}
		return it.Close()
	}

	// Collect the rows of all edges from and to the user, first those at the other ends of the
	// edges, and then those at the home of the user.
	var deleted [][]byte
	err := b.EachPartition(func(partition uint8) error {
		return eachRow(endInKey(partition, user), func(key []byte, peer string) {
			deleted = append(deleted, key, projections.AppendKey(nil, endList, peer, user))
		})
	})
	if err == nil {
		err = eachRow(projections.AppendKey(nil, endIndex, user), func(key []byte, follower string) {
			deleted = append(deleted, key, projections.AppendKey(nil, endOut, follower, user))
		})
	}
	if err == nil && b.Holds(user) {
		err = eachRow(projections.AppendKey(nil, endList, user), func(key []byte, follower string) {
			deleted = append(deleted, key, endInKey(events.ShardOf(user).Partition(), follower, user))
		})
	}
	if err == nil && b.Holds(user) {
		err = eachRow(projections.AppendKey(nil, endOut, user), func(key []byte, peer string) {
			deleted = append(deleted, key, endIndexKey(peer, user))
		})
	}

	for _, key := range deleted {
		b.Delete(key)
	}
	return err
}

// TestToyProjection runs the suite for the projection in this file, which has everything that a
// projection needs. To become part of skein it would only need a range of tags and a line in
// package all.
func TestToyProjection(t *testing.T) {
	Run(t, Case{
		New:  func() projections.Projection { return edgeEnds{} },
		Tags: TagRange{First: endOut, Last: endGone, Remote: []projections.Tag{endIn}},
		Histories: []History{
			{Name: "follows", Envelopes: histories.Envelopes(histories.Fixed(0, 300))},
			{Name: "likes", Envelopes: histories.Envelopes(histories.FixedFeeds(0, 300))},
		},
	})
}

// TestFoldOfTwoHomesConforms checks the law of partitions for a fold that writes at both ends of an
// edge, each if it is held, and for the rows of the runtime: offsets, rejects and the position.
func TestFoldOfTwoHomesConforms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		envs, s, bounds := drawPartitions(t)
		newEnds := func() projections.Projection { return edgeEnds{} }
		straight := foldPartitions(t, edgeEnds{}, envs, store.Bounds{}, nil)
		if diff := diffPartitions(t, newEnds, envs, &s, straight, bounds); diff != "" {
			t.Fatalf("rows in the partitions %s differ from those of a fold for all:\n%s", &s, diff)
		}
	})
}
