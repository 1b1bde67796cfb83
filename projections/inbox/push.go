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
	// hash is of time and pin. Whose pin it is has no say in what is trimmed, since an erasure renames users.
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
		s, err := f.queries.Sight(reader, ev.User)
		if err != nil || s.Explicit {
			return err
		}
		return f.pull(reader, ev.User, &ev.Board)
	})
}

// deliver puts a pin into the inbox of a reader, given by the key encoding of the id, if there is one and the pin is above its
// floor. It is called for each follower of whoever pins, so it makes nothing that has to be collected.
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

// enter writes an entry to an inbox, and reports whether the inbox is to be looked at. That is done now and then, at random but by
// reader, time and pin alone, so that two builds and a fold that was cut do the same: nothing need be counted. It
// is after half of what is kept on average, so that an inbox is seldom more than twice as large.
func (f *Inbox) enter(shard events.Shard, id []byte, c *candidate) (look bool) {
	f.key = append(entryPrefix(f.key[:0], c.week, shard, id), c.sortKey...)
	f.b.Set(f.key, nil)
	return xxh3.HashSeed(id, c.hash)%max(1, uint64(f.settings.Keep)/2) == 0
}

// trim raises the floor of an inbox that holds too much, so that the newest entries stay.
func (f *Inbox) trim(name string, r reader) error {
	keys := f.takeKeys()
	defer f.giveKeys(keys)
	prefixes := entryPrefixes(name, f.b.LogTime(), r.floorTime())
	n := len(prefixes[0])
	for _, prefix := range prefixes {
		// To the floor, so that nobody walks over what was trimmed and is not compacted yet.
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
	// A floor is a time and names nobody, so entries of one time go together.
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

// forget removes the pins of an owner from an inbox, also those below its floor.
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
