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

// Whom a post concerns stands in the regions of its owner and board (package graph), by partition: one walk serves all partitions
// that the store holds. An owner is pulled in a partition where more than [Settings.Threshold] users follow the owner or a board of
// the owner: all of them have rows that say so (pulls.go), and posts pass over the partition. Each partition decides by its own part
// of the region (I13).
//
// Nothing counts followers. Whether an owner has become too large for a partition is seen by a new relation now and then, so that about
// half as many as the threshold come between two looks. That the owner has become small again is seen at once.
//
// Invariant: where an owner is pulled, more than half of the threshold are concerned. So a walk that meets fewer need not ask.

// pulledKey appends the key of the row that says that an owner is pulled in a partition.
func pulledOwnerKey(dst []byte, owner string, partition uint8) []byte {
	return append(projections.AppendKey(dst, tagPulledOwner, owner), partition)
}

// concerned reports whether posts of the owner of a region, or moves of pins, may concern a user.
func isConcerned(r graph.Related) bool { return r.Follows || r.Boards }

// regionWalk goes over users in a region of an owner, or in one of a board of the owner, but not in partitions where the
// owner is pulled.
type regionScan struct {
	inbox *Inbox
	owner string
	// pulled are those partitions. They are read once a partition is met where there are so many users that it may be one.
	pulledPartitions events.Partitions
	pulledRead       bool
	// boards is set once a user was met who follows or excludes boards of the owner.
	foundBoardRelation bool
}

// metUser is a row of a region in a list of keys: the flags, the partition, and the id.
const (
	regionUserFollows = 1 << iota
	regionUserFollowsBoards
)

// each calls do with all who are concerned. The event may be cut between chunks.
func (w *regionScan) eachConcerned(prefix []byte, do func(graph.Related)) error {
	met := &w.inbox.readKeys
	for from := prefix; from != nil; {
		met.reset()
		var err error
		if from, err = w.readPartitions(prefix, from, met); err != nil {
			return err
		}
		for i := range met.len() {
			if row := met.at(i); !w.pulledPartitions.Has(row[1]) {
				do(decodeRegionUser(row))
			}
		}
		if from == nil {
			return nil
		}
		if err := w.inbox.batch.Step(); err != nil {
			return err
		}
	}
	return nil
}

func decodeRegionUser(met []byte) graph.Related {
	return graph.Related{Key: met[2:], Follows: met[0]&regionUserFollows != 0, Boards: met[0]&regionUserFollowsBoards != 0}
}

// gather collects the users of whole partitions, from a key on, and returns where the rest begins; nil means that there is none.
func (w *regionScan) readPartitions(prefix, from []byte, met *keyList) (rest []byte, err error) {
	it := w.inbox.batch.Iter(from, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()
	limit := w.inbox.settings.Threshold
	partition, users := -1, int64(0)
	for more := it.Next(); more; {
		row := it.Key()[len(prefix):]
		if len(row) == 0 {
			return nil, errRow("region key", it.Key())
		}
		if int(row[0]) != partition {
			if met.len() >= rowsPerStep {
				return bytes.Clone(it.Key()), nil
			}
			partition, users = int(row[0]), 0
		}
		if w.pulledPartitions.Has(row[0]) {
			next := partition
			for next < events.NumPartitions && w.pulledPartitions.Has(uint8(next)) {
				next++
			}
			if next == events.NumPartitions {
				return nil, nil
			}
			more = it.SeekGE(append(bytes.Clone(prefix), byte(next)))
			continue
		}
		r, err := graph.CutRegion(row, it.Value())
		if err != nil {
			return nil, err
		}
		if isConcerned(r) {
			met.addRegionUser(r, row)
			w.foundBoardRelation = w.foundBoardRelation || r.Boards
			if users++; limit >= 0 && users > limit/2 && !w.pulledRead {
				if err := w.readPulled(); err != nil {
					return nil, err
				}
			}
		}
		more = it.Next()
	}
	return nil, nil
}

func (w *regionScan) readPulled() error {
	prefix := projections.AppendKey(nil, tagPulledOwner, w.owner)
	it := w.inbox.batch.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		if len(it.Key()) != len(prefix)+1 {
			return errors.Join(errRow("pulled key", it.Key()), it.Close())
		}
		w.pulledPartitions.Add(it.Key()[len(prefix)])
	}
	w.pulledRead = true
	return it.Close()
}

// balance has an owner pulled or no longer pulled in the partition of a user whose relation to the owner has begun (grows) or
// ended. Growth is looked at now and then, at random but by the position of the event alone: an erasure renames users, and nothing else.
func (f *Inbox) updatePulledOwner(user, owner string, grows bool) error {
	limit := f.settings.Threshold
	if limit < 0 || grows && f.eventHash()%uint64(max(1, limit/2)) != 0 {
		return nil
	}
	partition := events.ShardOf(user).Partition()
	pulled, err := f.hasRow(pulledOwnerKey(f.key[:0], owner, partition))
	if err != nil || pulled == grows {
		return err
	}
	prefix := append(graph.RegionPrefix(nil, owner), partition)
	met := &f.readKeys
	met.reset()
	it := f.batch.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() && (grows || int64(met.len()) <= limit/2) {
		row := it.Key()[len(prefix)-1:]
		r, err := graph.CutRegion(row, it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if isConcerned(r) {
			met.addRegionUser(r, row)
		}
	}
	if err := it.Close(); err != nil {
		return err
	}
	if n := int64(met.len()); grows && n <= limit || !grows && n > limit/2 {
		return nil
	}
	f.key = pulledOwnerKey(f.key[:0], owner, partition)
	if grows {
		f.batch.Set(f.key, nil)
	} else {
		f.batch.Delete(f.key)
	}
	for i := range met.len() {
		if err := f.setPullRowsOfUser(decodeRegionUser(met.at(i)), owner, grows); err != nil {
			return err
		}
	}
	return nil
}

// luck is a random number that the event's place in the log decides, which a live fold and a build share (I4).
func (f *Inbox) eventHash() uint64 {
	var b [10]byte
	binary.BigEndian.PutUint64(b[:8], f.ev.Seq)
	binary.BigEndian.PutUint16(b[8:], f.ev.Slot)
	return xxh3.Hash(b[:])
}
