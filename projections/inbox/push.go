package inbox

import (
	"bytes"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// candidate is a sort key on its way into inboxes.
type candidate struct {
	sortKey []byte
	week    week
	// hash is of the time and the pin, and decides after which entries an inbox is trimmed. It must not depend on the owner, because an
	// erasure replaces the id of the owner in the log, and a rebuild must trim at the same entries.
	hash uint64
}

func candidateOf(created events.Micros, owner, pin string) candidate {
	sortKey := sortKeyOf(created, owner, pin)
	return candidate{sortKey, weekOf(created), xxh3.HashStringSeed(pin, uint64(created))}
}

// pushCreated brings the pin of an event to the inboxes of those who follow its owner or its board. The event alone decides, since
// facts about the pin stand with its owner: of a pin that lives already, inboxes get a candidate that no read shows. All explicit
// followers get it, also those who exclude the board: a board that is no longer excluded costs nothing here. History goes to the followers
// of every board of the owner: the pin may have been moved to any of them, even before the time that history gives it.
//
// It may be cut between chunks of followers. To deliver twice is to deliver once.
func (f *Inbox) pushCreated() error {
	ev := f.ev
	if ev.Time <= f.horizon {
		return nil
	}
	c := candidateOf(ev.Time, ev.User, ev.Pin)
	w := regionWalk{f: f, owner: ev.User}
	err := w.each(graph.RegionPrefix(nil, ev.User), true, func(r graph.Related) error {
		if !r.Follows && (!ev.Backfill || !r.Boards) {
			return nil
		}
		return f.deliver(r.Key, &c)
	})
	if err != nil || !w.boards {
		return err
	}
	return w.each(graph.BoardRegionPrefix(nil, ev.User, ev.Board), false, func(r graph.Related) error { return f.deliver(r.Key, &c) })
}

// pushMoved has those who follow a board, and not its owner, look into its outbox for what was moved there: down from now, since
// the event does not say when the pin was created.
func (f *Inbox) pushMoved() error {
	ev := f.ev
	w := regionWalk{f: f, owner: ev.User}
	return w.each(graph.BoardRegionPrefix(nil, ev.User, ev.Board), false, func(r graph.Related) error {
		reader, _, err := events.CutID(r.Key)
		if err != nil {
			return err
		}
		s, err := f.queries.Visibility(reader, ev.User)
		if err != nil || s.Explicit {
			return err
		}
		return f.pull(reader, ev.User, &ev.Board)
	})
}

// deliver puts a pin into the inbox of a reader, given by the key encoding of the id, if there is one and the pin is above its
// floor. It is called for every follower of the pin's owner, so it does not allocate.
func (f *Inbox) deliver(id []byte, c *candidate) error {
	shard, err := events.ShardOfKey(id)
	if err != nil {
		return err
	}
	f.key = append(projections.AppendPrefix(f.key[:0], shard, tagReader), id...)
	r, ok, err := readReader(f.b, f.key)
	if err != nil || !ok {
		return err
	}
	if r = r.at(f.horizon); !r.ready || bytes.Compare(c.sortKey, r.floor[:]) >= 0 {
		return nil
	}
	if !f.enter(shard, id, c) {
		return nil
	}
	name, _, err := events.CutID(id)
	if err != nil {
		return err
	}
	return f.trim(name, r)
}

// enter writes an entry to an inbox, and reports whether the inbox should be trimmed now. Nothing counts the entries. Instead a hash of
// reader, time and pin chooses one entry in [Settings.Keep]/2, so that an inbox seldom holds more than twice what it should, and every
// build and every repeated fold trims after the same entries (I4).
func (f *Inbox) enter(shard events.Shard, id []byte, c *candidate) (look bool) {
	f.key = append(entryPrefix(f.key[:0], c.week, shard, id), c.sortKey...)
	f.b.Set(f.key, nil)
	return xxh3.HashSeed(id, c.hash)%max(1, uint64(f.settings.Keep)/2) == 0
}

// trim removes the oldest entries of an inbox that holds more than [Settings.Keep], and raises its floor above them.
func (f *Inbox) trim(name string, r reader) error {
	keys := f.takeKeys()
	defer f.giveKeys(keys)
	prefixes := entryPrefixes(name, f.b.LogTime(), r.floorTime())
	n := len(prefixes[0])
	for _, prefix := range prefixes {
		// It ends at the floor, and so does not walk over entries that were deleted and are not compacted yet.
		it := f.b.Iter(prefix, append(bytes.Clone(prefix), r.floor[:]...))
		for it.Next() {
			keys.add(it.Key())
		}
		if err := it.Close(); err != nil {
			return err
		}
	}
	keep := f.settings.Keep
	if keys.len() <= keep {
		return nil
	}
	// A floor is a time and not a sort key, which would name an owner (I12). So entries of one time are kept or removed together.
	r.floor = [8]byte(keys.at(keep)[n:])
	for keep > 0 && bytes.HasPrefix(keys.at(keep - 1)[n:], r.floor[:]) {
		keep--
	}
	for i := keep; i < keys.len(); i++ {
		f.b.Delete(keys.at(i))
	}
	if err := f.dropPulls(name, r); err != nil {
		return err
	}
	f.writeReader(name, r)
	return nil
}

// forget removes the pins of an owner from an inbox, also those below its floor, which no page reads but which name the owner (I12).
func (f *Inbox) forget(name, owner string) error {
	if known, err := f.has(projections.AppendKey(f.key[:0], tagReader, name)); err != nil || !known {
		return err
	}
	drop := f.takeKeys()
	defer f.giveKeys(drop)
	for _, prefix := range entryPrefixes(name, f.b.LogTime(), f.horizon) {
		it := f.b.Iter(prefix, projections.PrefixEnd(prefix))
		for it.Next() {
			_, of, _, err := cutSortKey(it.Key()[len(prefix):])
			if err != nil {
				_ = it.Close() // the first error is the cause
				return err
			}
			if of == owner {
				drop.add(it.Key())
			}
		}
		if err := it.Close(); err != nil {
			return err
		}
	}
	for i := range drop.len() {
		f.b.Delete(drop.at(i))
	}
	return nil
}
