package inbox

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// The region of an owner or of a board (package graph) lists, sorted by partition, the users with a
// relation to the owner or the board. One scan of a region covers all partitions that the store
// holds. An owner is pulled in a partition where more than [Settings.Threshold] users follow the
// owner or a board of the owner: all of these users have pull rows (pulls.go), and new pins are not
// pushed in the partition. Each partition decides by its own part of the region (I13).
//
// No row counts the followers in a partition. To find out whether an owner has passed the
// threshold, the fold counts the users in the region, but only after some new relations, which a
// hash chooses: on average, after one of every Threshold/2. So an owner may pass the threshold some
// time before the owner is pulled. After every relation that ends, the fold checks at once whether
// a pulled owner has no more than Threshold/2 users in the partition, and is to be pushed again.
//
// Invariant: where an owner is pulled, more than Threshold/2 users of the partition follow the
// owner or a board of the owner. So a scan of the owner's region that finds no more than that in a
// partition need not read whether the owner is pulled there.

// pulledOwnerKey appends the key of the row that says that an owner is pulled in a partition.
func pulledOwnerKey(dst []byte, owner string, partition uint8) []byte {
	return append(projections.AppendKey(dst, tagPulledOwner, owner), partition)
}

// isConcerned reports whether a user of a region follows the owner or the board of the region, or
// any board of the owner. Only then may the owner's pins be in the user's feed.
func isConcerned(r graph.RegionRow) bool { return r.Follows || r.BoardsOnly }

// regionScan visits the users in the regions of an owner and of the owner's boards. It skips
// partitions where the owner is pulled. A scan of a board's region alone may miss that the owner is
// pulled, so its caller must only drop inboxes there, which is needless then, but harmless.
type regionScan struct {
	inbox *Inbox
	owner string
	// pulledPartitions are the partitions where the owner is pulled. Most owners have few followers
	// and are pulled nowhere. So the scan reads pulledPartitions, and sets pulledRead, only once it
	// finds a partition with so many users that the owner may be pulled there.
	pulledPartitions events.Partitions
	pulledRead       bool
	// foundBoardRelation is set once the scan has found a user who follows boards of the owner, but
	// not the owner.
	foundBoardRelation bool
}

// usersPerStep is how many users readPartitions collects before it stops at the end of a partition.
// After these users, the fold of a large event may be committed ([projections.Batch.Step]).
const usersPerStep = 256

// eachConcerned calls do with all users of the region with this prefix for whom isConcerned holds.
// It calls [projections.Batch.Step] between chunks of users, while no iterator is open.
func (s *regionScan) eachConcerned(prefix []byte, do func(graph.RegionRow)) error {
	users := &s.inbox.regionUsers
	for from := prefix; from != nil; {
		users.reset()
		var err error
		if from, err = s.readPartitions(prefix, from, users); err != nil {
			return err
		}

		// readPartitions collects the first users of a partition before it knows that the owner is
		// pulled there, so skip such users here. This works because a chunk has whole partitions.
		for i := range users.len() {
			if !s.pulledPartitions.Has(users.partitionAt(i)) {
				do(users.at(i))
			}
		}

		if from == nil {
			return nil
		}
		if err := s.inbox.batch.Step(); err != nil {
			return err
		}
	}
	return nil
}

// readPartitions collects the users of whole partitions, beginning at the key from. It stops after
// the partition with which users has at least usersPerStep entries. It returns the key at which the
// rest of the region begins, or nil if there is none.
func (s *regionScan) readPartitions(prefix, from []byte, users *regionUserList) (rest []byte, err error) {
	it := s.inbox.batch.Iter(from, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()

	limit := s.inbox.settings.Threshold
	partition := -1
	usersInPartition := int64(0)
	for more := it.Next(); more; {
		row := it.Key()[len(prefix):]
		if len(row) == 0 {
			return nil, errRow("region key", it.Key())
		}

		if int(row[0]) != partition {
			if users.len() >= usersPerStep {
				return bytes.Clone(it.Key()), nil
			}
			partition = int(row[0])
			usersInPartition = 0
		}
		if s.pulledPartitions.Has(row[0]) {
			next := s.nextPushedPartition(partition)
			if next == events.NumPartitions {
				return nil, nil
			}
			more = it.SeekGE(append(bytes.Clone(prefix), byte(next)))
			continue
		}

		r, err := graph.DecodeRegionRow(row, it.Value())
		if err != nil {
			return nil, err
		}
		if isConcerned(r) {
			users.add(r, row)
			s.foundBoardRelation = s.foundBoardRelation || r.BoardsOnly
			usersInPartition++
			if limit >= 0 && usersInPartition > limit/2 && !s.pulledRead {
				if err := s.readPulledPartitions(); err != nil {
					return nil, err
				}
			}
		}
		more = it.Next()
	}
	return nil, nil
}

// nextPushedPartition returns the first partition at or after the given one in which the owner is
// not pulled, or [events.NumPartitions] if there is none.
func (s *regionScan) nextPushedPartition(partition int) int {
	for partition < events.NumPartitions && s.pulledPartitions.Has(uint8(partition)) {
		partition++
	}
	return partition
}

func (s *regionScan) readPulledPartitions() error {
	prefix := projections.AppendKey(nil, tagPulledOwner, s.owner)
	it := s.inbox.batch.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		if len(it.Key()) != len(prefix)+1 {
			return errors.Join(errRow("pulled key", it.Key()), it.Close())
		}
		s.pulledPartitions.Add(it.Key()[len(prefix)])
	}
	s.pulledRead = true
	return it.Close()
}

// updatePulledOwner decides whether an owner is pulled in the partition of a user. With grows, the
// user began to follow the owner or a board of the owner, and the owner may become pulled. Without
// grows, a follow or the relation ended, and the owner may cease to be pulled. If so, it writes or
// deletes the pull rows of all users of the partition who follow the owner or boards of the owner.
func (f *Inbox) updatePulledOwner(user, owner string, grows bool) error {
	limit := f.settings.Threshold
	if limit < 0 { // everything is pushed
		return nil
	}

	// Counting after every new relation would cost a scan each time. Whether to count after this
	// event depends only on the event's place in the log, and not on ids, because an erasure
	// renames users.
	if grows && f.eventHash()%uint64(max(1, limit/2)) != 0 {
		return nil
	}

	partition := events.ShardOf(user).Partition()
	pulled, err := f.hasRow(pulledOwnerKey(f.key[:0], owner, partition))
	if err != nil || pulled == grows {
		return err
	}

	// After a follow has ended, stop counting at the first user above limit/2: the owner then stays
	// pulled, and the exact number does not matter.
	prefix := append(graph.RegionPrefix(nil, owner), partition)
	users := &f.regionUsers
	users.reset()
	it := f.batch.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() && (grows || int64(users.len()) <= limit/2) {
		row := it.Key()[len(prefix)-1:]
		r, err := graph.DecodeRegionRow(row, it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if isConcerned(r) {
			users.add(r, row)
		}
	}
	if err := it.Close(); err != nil {
		return err
	}

	// The limits for pulling and for pushing again differ. Otherwise each follow and unfollow could
	// switch an owner whose number of followers is near the limit.
	if n := int64(users.len()); grows && n <= limit || !grows && n > limit/2 {
		return nil
	}

	f.key = pulledOwnerKey(f.key[:0], owner, partition)
	if grows {
		f.batch.Set(f.key, nil)
	} else {
		f.batch.Delete(f.key)
	}
	for i := range users.len() {
		if err := f.setPullRowsOfUser(users.at(i), owner, grows); err != nil {
			return err
		}
	}
	return nil
}

// eventHash returns a pseudorandom number that depends only on the event's place in the log. So a
// live fold and the build of a generation get the same number (I4).
func (f *Inbox) eventHash() uint64 {
	var place [10]byte
	binary.BigEndian.PutUint64(place[:8], f.ev.Seq)
	binary.BigEndian.PutUint16(place[8:], f.ev.Slot)
	return xxh3.Hash(place[:])
}
