package inbox

import (
	"bytes"
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// source is whether the pins of a user, or on a board, are pushed.
type source struct {
	// pulled: readers merge the outbox.
	pulled bool
	// mark is when it was last pulled, in log time; 0: never. A reader whose floor is older still merges the outbox.
	mark events.Micros
}

func (s source) append(dst []byte) []byte {
	flag := byte(0)
	if s.pulled {
		flag = 1
	}
	return binary.AppendUvarint(append(dst, flag), uint64(s.mark))
}

func sourceKey(dst []byte, owner string, board *string) []byte {
	if board == nil {
		return projections.AppendKey(dst, tagSource, owner)
	}
	return projections.AppendKey(dst, tagBoardSource, owner, *board)
}

func pullKey(dst []byte, reader, owner string, board *string) []byte {
	if board == nil {
		return projections.AppendKey(dst, tagPull, reader, owner)
	}
	return projections.AppendKey(dst, tagBoardPull, reader, owner, *board)
}

func readSource(r projections.Reader, key []byte) (s source, err error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return s, err
	}
	return decodeSource(row)
}

func decodeSource(row []byte) (s source, err error) {
	if len(row) < 2 || row[0] > 1 {
		return s, errRow("source", row)
	}
	mark, n := binary.Uvarint(row[1:])
	if n != len(row)-1 {
		return s, errRow("source", row)
	}
	return source{pulled: row[0] == 1, mark: events.Micros(mark)}, nil
}

// pushPin brings a pin that begins, or comes to another board or time, to the inboxes of those who follow its owner or its
// board. All explicit followers of the owner get it, also those who exclude the board: what a reader sees of an inbox is
// decided on reading, and a pin that moves, a board that is no longer excluded or a mute that ends cost nothing here.
func (f *Inbox) pushPin(p *pin, after pinfacts.State) error {
	begins := p.before.Made == nil || p.before.Made.Time != after.Made.Time
	if !begins && p.before.Board == after.Board {
		return nil
	}
	place := placeOf(after.Made.Time, p.owner, p.id)
	if begins {
		if err := f.push(p.owner, nil, place, graph.FollowersPrefix(nil, p.owner)); err != nil {
			return err
		}
	}
	return f.push(p.owner, &after.Board, place, graph.BoardFollowersPrefix(nil, p.owner, after.Board))
}

// push delivers a pin to the inboxes of some followers, in steps. To deliver twice is to deliver once.
func (f *Inbox) push(owner string, board *string, place, followers []byte) error {
	s, err := readSource(f.b, sourceKey(f.key[:0], owner, board))
	if err != nil || s.pulled {
		return err
	}
	// Most boards are followed by nobody but with their owner, and a count is read sooner than a walk is begun.
	if n, err := f.queries.Explicit(owner, board); err != nil || n == 0 {
		return err
	}
	return f.each(followers, false, func(rest []byte) error {
		id, err := graph.CutUserKey(rest)
		if err != nil {
			return err
		}
		return f.deliver(id, place)
	})
}

// deliver puts a pin into the inbox of a reader, given by the key encoding of the id, if there is one and the pin is above its
// floor. It is called for each follower of whoever pins, so it makes nothing that has to be collected.
func (f *Inbox) deliver(id, place []byte) error {
	shard, err := events.ShardOfKey(id)
	if err != nil {
		return err
	}
	f.key = append(projections.AppendPrefix(f.key[:0], shard, tagReader), id...)
	r, ok, err := readReader(f.b, f.key)
	if err != nil || !ok || !r.ready {
		return err
	}
	expired := f.b.LogTime()-r.active > events.Micros(f.settings.Active.Microseconds())
	if !expired {
		if bytes.Compare(place, r.floor[:]) >= 0 {
			return nil
		}
		f.key = append(projections.AppendPrefix(f.key[:0], shard, tagEntry), id...)
		if !f.enter(place) {
			return nil
		}
	}
	name, _, err := events.CutID(id)
	switch {
	case err != nil:
		return err
	case expired:
		return f.lose(name, r)
	}
	return f.trim(name, r)
}

// enter writes an entry to the inbox whose prefix is in f.key, and reports whether the inbox is to be looked at. That is done now
// and then, at random but by the key alone, so that two builds and a fold that was cut do the same: nothing need be counted. It
// is after half of what is kept on average, so that an inbox is seldom more than twice as large.
func (f *Inbox) enter(place []byte) (look bool) {
	f.key = append(f.key, place...)
	f.b.Set(f.key, nil)
	return xxh3.Hash(f.key)%max(1, uint64(f.settings.Keep)/2) == 0
}

// trim raises the floor of an inbox that holds too much, so that the newest entries stay.
func (f *Inbox) trim(name string, r reader) error {
	prefix := projections.AppendKey(nil, tagEntry, name)
	keys := f.takeKeys()
	defer f.giveKeys(keys)
	it := f.b.Iter(prefix, inboxEnd(prefix, r))
	for it.Next() {
		keys.add(it.Key())
	}
	keep := f.settings.Keep
	if err := it.Close(); err != nil || keys.len() <= keep {
		return err
	}
	// A floor is a time and names nobody, so entries of one time go together.
	r.floor = [8]byte(keys.at(keep)[len(prefix):])
	for keep > 0 && bytes.HasPrefix(keys.at(keep - 1)[len(prefix):], r.floor[:]) {
		keep--
	}
	for i := keep; i < keys.len(); i++ {
		f.b.Delete(keys.at(i))
	}
	if err := f.dropPulls(name, r.floor[:]); err != nil {
		return err
	}
	f.writeReader(name, r)
	return nil
}

// inboxEnd returns the end of an inbox: at the floor, so that nobody walks over what was trimmed and is not compacted yet.
func inboxEnd(prefix []byte, r reader) []byte { return append(bytes.Clone(prefix), r.floor[:]...) }

// dropPulls removes the rows that make a reader merge outboxes which were pulled below the floor only.
func (f *Inbox) dropPulls(name string, floor []byte) error {
	drop := f.takeKeys()
	defer f.giveKeys(drop)
	for _, tag := range []projections.Tag{tagPull, tagBoardPull} {
		prefix := projections.AppendKey(nil, tag, name)
		drop.reset()
		it := f.b.Iter(prefix, projections.PrefixEnd(prefix))
		for it.Next() {
			owner, board, err := cutPull(tag, it.Key()[len(prefix):])
			if err == nil {
				var s source
				if s, err = readSource(f.b, sourceKey(f.key[:0], owner, board)); err == nil && !s.pulled &&
					bytes.Compare(appendNewestFirst(nil, s.mark), floor) >= 0 {
					drop.add(it.Key())
				}
			}
			if err != nil {
				_ = it.Close() // the first error is the cause
				return err
			}
		}
		if err := it.Close(); err != nil {
			return err
		}
		for i := range drop.len() {
			f.b.Delete(drop.at(i))
		}
	}
	return nil
}

// cutPull reads what a reader pulls: what follows the prefix of the reader in a row with the tag.
func cutPull(tag projections.Tag, rest []byte) (owner string, board *string, err error) {
	owner, rest, err = events.CutID(rest)
	if err == nil && tag == tagBoardPull {
		var b string
		b, rest, err = events.CutID(rest)
		board = &b
	}
	if err == nil && len(rest) != 0 {
		err = errRow("pull key", rest)
	}
	return owner, board, err
}

// relationChanged hears from the graph that a reader began or ceased to follow, after the rows of that are written.
func (f *Inbox) relationChanged(c graph.Change) error {
	if c.Was != c.Is {
		if err := f.followChanged(c.Follower, c.Owner, nil, c.Is); err != nil {
			return err
		}
	}
	for i := range c.Boards {
		if err := f.followChanged(c.Follower, c.Owner, &c.Boards[i].Board, c.Boards[i].Is); err != nil {
			return err
		}
	}
	if c.Gone {
		// Nothing else leads from the owner to this reader any more: without this the owner could not be erased.
		return f.forget(c.Follower, c.Owner)
	}
	return nil
}

// followChanged keeps the inbox of a reader and the state of what is followed, a user or (board not nil) a board.
func (f *Inbox) followChanged(name, owner string, board *string, is bool) error {
	s, err := readSource(f.b, sourceKey(f.key[:0], owner, board))
	if err != nil {
		return err
	}
	if !is && s == (source{}) {
		return nil
	}
	n, err := f.queries.Explicit(owner, board)
	if err != nil {
		return err
	}
	limit := f.settings.Threshold
	switch {
	case !is:
		f.key = pullKey(f.key[:0], name, owner, board)
		f.b.Delete(f.key)
		// Half of it, so that one who comes and goes does not turn it over and over.
		if s.pulled && n <= limit/2 {
			f.setSource(owner, board, source{mark: f.b.LogTime()})
		}
		return nil
	case s.pulled:
		f.key = pullKey(f.key[:0], name, owner, board)
		f.b.Set(f.key, nil)
		return nil
	case limit >= 0 && n > limit:
		return f.stopPushing(owner, board)
	}
	return f.copy(name, owner, board)
}

func (f *Inbox) setSource(owner string, board *string, s source) {
	f.key = sourceKey(f.key[:0], owner, board)
	f.value = s.append(f.value[:0])
	f.b.Set(f.key, f.value)
}

// stopPushing makes the followers of what has crossed the threshold read its outbox. There are as many as the threshold
// says and one more.
func (f *Inbox) stopPushing(owner string, board *string) error {
	prefix := graph.FollowersPrefix(nil, owner)
	if board != nil {
		prefix = graph.BoardFollowersPrefix(nil, owner, *board)
	}
	var readers []string
	it := f.b.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		name, err := graph.CutUser(it.Key()[len(prefix):])
		if err != nil {
			_ = it.Close() // the first error is the cause
			return err
		}
		readers = append(readers, name)
	}
	if err := it.Close(); err != nil {
		return err
	}
	for _, name := range readers {
		f.key = pullKey(f.key[:0], name, owner, board)
		f.b.Set(f.key, nil)
	}
	f.setSource(owner, board, source{pulled: true, mark: f.b.LogTime()})
	return nil
}

// copy brings what an outbox has above the floor into the inbox of a reader who begins to follow it.
func (f *Inbox) copy(name, owner string, board *string) error {
	r, ok, err := readReader(f.b, projections.AppendKey(f.key[:0], tagReader, name))
	if err != nil || !ok || !r.ready {
		return err
	}
	f.key = projections.AppendKey(f.key[:0], tagPinCount, owner)
	prefix := projections.AppendKey(nil, tagOutbox, owner)
	if board != nil {
		f.key = projections.AppendKey(f.key[:0], tagBoardPinCount, owner, *board)
		prefix = projections.AppendKey(nil, tagBoardOutbox, owner, *board)
	}
	// Most of those who are followed have not pinned anything, and a count is read sooner than a walk is begun.
	if n, err := readCount(f.b, f.key); err != nil || n == 0 {
		return err
	}
	var places [][]byte
	it := f.b.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		created, id, err := cutOutbox(it.Key()[len(prefix):])
		if err != nil {
			_ = it.Close() // the first error is the cause
			return err
		}
		place := placeOf(created, owner, id)
		if bytes.Compare(place, r.floor[:]) >= 0 {
			break
		}
		places = append(places, place)
	}
	if err := it.Close(); err != nil {
		return err
	}
	look := false
	for _, place := range places {
		f.key = projections.AppendKey(f.key[:0], tagEntry, name)
		look = f.enter(place) || look
	}
	if !look {
		return nil
	}
	return f.trim(name, r)
}

// forget removes the pins of an owner from an inbox.
func (f *Inbox) forget(name, owner string) error {
	r, ok, err := readReader(f.b, projections.AppendKey(f.key[:0], tagReader, name))
	if err != nil || !ok || !r.ready {
		return err
	}
	prefix := projections.AppendKey(nil, tagEntry, name)
	drop := f.takeKeys()
	defer f.giveKeys(drop)
	it := f.b.Iter(prefix, inboxEnd(prefix, r))
	for it.Next() {
		_, of, _, err := cutPlace(it.Key()[len(prefix):])
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
	for i := range drop.len() {
		f.b.Delete(drop.at(i))
	}
	return nil
}
