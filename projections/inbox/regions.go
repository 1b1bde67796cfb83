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

// The regions of an owner and of a board (package graph) list, by partition, the users whom a post
// concerns. One scan of a region serves all partitions that the store holds. An owner is pulled in
// a partition where more than [Settings.Threshold] users follow the owner or a board of the owner:
// all of these users have pull rows (pulls.go), and posts skip the partition. Each partition
// decides by its own part of the region (I13).
//
// Nothing counts followers. To find out whether an owner has become too large for a partition, the
// fold counts the users in the region after some of the new relations only, chosen at random: on
// average, half as many new relations as the threshold come between two counts. After every
// relation that ends, it checks at once whether the owner has become small again.
//
// Invariant: where an owner is pulled, more than half of the threshold are concerned. So a scan
// that finds fewer users in a partition need not read whether the owner is pulled there.

// pulledOwnerKey appends the key of the row that says that an owner is pulled in a partition.
func pulledOwnerKey(dst []byte, owner string, partition uint8) []byte {
	return append(projections.AppendKey(dst, tagPulledOwner, owner), partition)
}

// isConcerned reports whether posts of the owner of a region, or moves of the owner's pins, may
// concern a user of the region.
func isConcerned(r graph.RegionRow) bool { return r.Follows || r.BoardsOnly }

// regionScan goes over the users in regions of an owner and of boards of the owner. It skips
// partitions where the owner is pulled.
type regionScan struct {
	inbox *Inbox
	owner string
	// pulledPartitions are the partitions where the owner is pulled. They are read only once the
	// scan finds a partition with so many users that the owner may be pulled there, because most
	// owners are small. pulledRead is set then.
	pulledPartitions events.Partitions
	pulledRead       bool
	// foundBoardRelation is set once the scan has found a user who follows or excludes boards of
	// the owner.
	foundBoardRelation bool
}

// usersPerStep is how many users are read ahead before posts are delivered to them. After them, the
// fold of a large event may be cut.
const usersPerStep = 256

// eachConcerned calls do with all users of a region whom posts concern. It may cut the event
// between chunks of users.
func (s *regionScan) eachConcerned(prefix []byte, do func(graph.RegionRow)) error {
	users := &s.inbox.regionUsers
	for from := prefix; from != nil; {
		users.reset()
		var err error
		if from, err = s.readPartitions(prefix, from, users); err != nil {
			return err
		}

		// readPartitions collects the first users of a partition before it knows that the owner is
		// pulled there.
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

// readPartitions collects the users of at least one whole partition, from a key on. It returns the
// key where the rest begins, or nil if there is none.
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

// nextPushedPartition returns the first partition, from one on, where the owner is not pulled, or
// [events.NumPartitions] if there is none.
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

// updatePulledOwner decides whether an owner is pulled in the partition of a user whose relation to
// the owner has begun (grows) or ended. If that changes, it writes or deletes the pull rows of all
// users of the partition whom the owner's posts concern.
func (f *Inbox) updatePulledOwner(user, owner string, grows bool) error {
	limit := f.settings.Threshold
	if limit < 0 { // everything is pushed
		return nil
	}

	// Counting after every new relation would cost a scan each time. Whether this event is one of
	// those that count depends on its place in the log alone, and not on ids, because an erasure
	// renames users.
	if grows && f.eventHash()%uint64(max(1, limit/2)) != 0 {
		return nil
	}

	partition := events.ShardOf(user).Partition()
	pulled, err := f.hasRow(pulledOwnerKey(f.key[:0], owner, partition))
	if err != nil || pulled == grows {
		return err
	}

	// An owner who has shrunk needs to be counted only up to the point that keeps the owner pulled.
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

	// The two limits differ, so that an owner at the limit is not switched back and forth by every
	// follow and unfollow.
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

// eventHash returns a random number that depends only on the event's place in the log. A live fold
// and a build get the same one (I4).
func (f *Inbox) eventHash() uint64 {
	var place [10]byte
	binary.BigEndian.PutUint64(place[:8], f.ev.Seq)
	binary.BigEndian.PutUint16(place[8:], f.ev.Slot)
	return xxh3.Hash(place[:])
}
