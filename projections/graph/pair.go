package graph

import (
	"bytes"
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// txn is the fold of one event: the batch and scratch space.
type txn struct {
	b  *projections.Batch
	ev *events.Event
	at stamp
	// key and value are scratch: the batch copies what it is given.
	key, value []byte
	// short is up to how many edges of a user the list of follows is not kept.
	short int64
	// observe hears of changes, if somebody wants to.
	observe func(Change) error
}

// put writes a row, or removes it when the value says that there is nothing to keep.
func (t *txn) put(key, value []byte) {
	if len(value) == 0 {
		t.b.Delete(key)
		return
	}
	t.b.Set(key, value)
}

// pair is the edge (a, b) while one event changes it: the facts before and after, and the board relations that
// the change begins or ends. [txn.write] turns the difference into rows and counts, so that every kind of event
// changes facts only and lists and counts follow from them in one place.
type pair struct {
	a, b          string
	before, after edge
	changes       []change
}

// change is a board relation of the pair before and after the event.
type change struct {
	board    string
	old, new relation
}

func (t *txn) read(a, b string) (*pair, error) {
	p := &pair{a: a, b: b}
	e, err := readEdge(t.b, t.key[:0], a, b)
	p.before, p.after = e, e
	return p, err
}

func readEdge(r projections.Reader, scratch []byte, a, b string) (e edge, err error) {
	row, ok, err := r.Get(projections.AppendKey(scratch, tagEdge, a, b))
	if err != nil || !ok {
		return e, err
	}
	return e, e.decode(row)
}

func readBoardEdge(r projections.Reader, scratch []byte, follower, owner, board string) (e boardEdge, err error) {
	row, ok, err := r.Get(boardEdgeKey(scratch, follower, owner, board))
	if err != nil || !ok {
		return e, err
	}
	return e, e.decode(row)
}

func readBoard(r projections.Reader, scratch []byte, owner, id string) (b board, err error) {
	if id == "" {
		return b, nil
	}
	row, ok, err := r.Get(projections.AppendKey(scratch, tagBoard, owner, id))
	if err != nil || !ok {
		return b, err
	}
	return b, b.decode(row)
}

// rederiveHeld finds what becomes of the board relations of the pair that hold. It is enough where facts about
// the owner can only end relations, and costs nothing for those that do not hold.
func (t *txn) rederiveHeld(p *pair) error {
	if !p.before.boards {
		return nil
	}
	prefix := projections.AppendKey(nil, tagHeld, p.a, p.b)
	var boards []string
	it := t.b.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		id, err := cutHeldBoard(it.Key()[len(prefix):])
		if err != nil {
			return errors.Join(err, it.Close())
		}
		boards = append(boards, id)
	}
	if err := it.Close(); err != nil {
		return err
	}
	return t.rederive(p, boards)
}

// rederiveAll does the same for every board edge of the pair: late history and the end of a backfilled block may
// bring relations back.
func (t *txn) rederiveAll(p *pair) error {
	if !p.before.boards {
		return nil
	}
	boards, err := t.boardEdges(p)
	if err != nil {
		return err
	}
	return t.rederive(p, boards)
}

func (t *txn) boardEdges(p *pair) ([]string, error) {
	prefix := projections.AppendKey(nil, tagBoardEdge, p.a, p.b)
	var boards []string
	it := t.b.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		id, _, err := events.CutID(it.Key()[len(prefix):])
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		boards = append(boards, id)
	}
	return boards, it.Close()
}

func (t *txn) rederive(p *pair, boards []string) error {
	for _, id := range boards {
		be, err := readBoardEdge(t.b, t.key[:0], p.a, p.b, id)
		if err != nil {
			return err
		}
		b, err := readBoard(t.b, t.key[:0], p.b, id)
		if err != nil {
			return err
		}
		p.changes = append(p.changes, change{id, be.relation(&p.before, b.deleted), be.relation(&p.after, b.deleted)})
	}
	return nil
}

func cutHeldBoard(rest []byte) (string, error) {
	if len(rest) < 9 {
		return "", errRow("held relation", rest)
	}
	id, _, err := events.CutID(rest[9:])
	return id, err
}

// write turns the difference between the facts before and after into rows and counts. The relations that hold,
// their lists, their mirrors and their counts change together here and nowhere else (I7).
func (t *txn) write(p *pair) error {
	wasSince, was := p.before.explicit()
	isSince, is := p.after.explicit()
	for _, c := range p.changes {
		if err := t.writeChange(p, c, was, is); err != nil {
			return err
		}
	}
	if err := t.deriveImplicit(p, is); err != nil {
		return err
	}
	var a, b userDelta
	before, after := follow{was, wasSince}, follow{is, isSince}
	if before != after {
		t.moveRow(tagFollowers, p.b, p.a, before, after)
		a[0], b[2] = delta(was, is), delta(was, is)
	}
	if old, now := p.before.implicit, p.after.implicit; old != now {
		before, after := follow{old != 0, old.time()}, follow{now != 0, now.time()}
		t.moveRow(tagFollowingImplicit, p.a, p.b, before, after)
		t.moveRow(tagFollowersImplicit, p.b, p.a, before, after)
		a[1], b[3] = delta(old != 0, now != 0), delta(old != 0, now != 0)
	}
	for _, c := range p.changes {
		a[5] += delta(c.old.kind == relationFollow, c.new.kind == relationFollow)
		a[6] += delta(c.old.kind == relationExclude, c.new.kind == relationExclude)
	}
	a[7] = t.moveStanding(p, tagBlocked, &p.before.block, &p.after.block)
	a[8] = t.moveStanding(p, tagMuted, &p.before.mute, &p.after.mute)
	if err := t.countUser(p.b, b); err != nil {
		return err
	}
	var err error
	if a[9], err = t.writeEdge(p, was, is); err != nil {
		return err
	}
	if err := t.countFollower(p, a, before, after); err != nil {
		return err
	}
	return t.tell(p, was, is)
}

func delta(was, is bool) int64 {
	switch {
	case is && !was:
		return 1
	case was && !is:
		return -1
	}
	return 0
}

// writeChange moves one board relation through the lists of follower and board.
func (t *txn) writeChange(p *pair, c change, was, is bool) error {
	if c.old != c.new {
		for _, side := range []struct {
			r   relation
			put func(key, value []byte)
		}{
			{c.old, func(key, _ []byte) { t.b.Delete(key) }},
			{c.new, t.b.Set},
		} {
			if side.r.kind == relationNone {
				continue
			}
			mine, theirs := tagFollowedBoards, tagBoardFollowers
			if side.r.kind == relationExclude {
				mine, theirs = tagExcludedBoards, tagBoardExcluders
			}
			t.key = heldKey(t.key[:0], p.a, p.b, c.board, side.r)
			side.put(t.key, nil)
			t.key = boardListKey(t.key[:0], mine, p.a, side.r.since, p.b, c.board)
			side.put(t.key, nil)
			t.key = ofBoardKey(t.key[:0], theirs, p.b, c.board, side.r.since, p.a)
			side.put(t.key, nil)
		}
	}
	follows := func(r relation) bool { return r.kind == relationFollow }
	return t.countBoard(p.b, c.board, boardDelta{
		delta(follows(c.old), follows(c.new)),
		delta(c.old.kind == relationExclude, c.new.kind == relationExclude),
		delta(follows(c.old) && !was, follows(c.new) && !is),
	})
}

// deriveImplicit finds the earliest board follow that holds: the first row of the pair's held relations.
func (t *txn) deriveImplicit(p *pair, explicit bool) error {
	if !p.after.boards {
		return nil
	}
	p.after.implicit = 0
	if explicit {
		return nil
	}
	prefix := heldPrefix(nil, p.a, p.b, relationFollow)
	it := t.b.Iter(prefix, projections.PrefixEnd(prefix))
	if it.Next() {
		rest := it.Key()[len(prefix):]
		if len(rest) < 8 {
			return errors.Join(errRow("held relation", rest), it.Close())
		}
		// Rows of held relations are oldest first: their time stands as it is, not as its complement.
		var since stamp
		for _, c := range rest[:8] {
			since = since<<8 | stamp(c)
		}
		p.after.implicit = since + 1
	}
	return it.Close()
}

// moveRow moves a user through a list of another user.
func (t *txn) moveRow(tag projections.Tag, of, user string, before, after follow) {
	if before.holds {
		t.key = listKey(t.key[:0], tag, of, before.since, user)
		t.b.Delete(t.key)
	}
	if after.holds {
		t.key = listKey(t.key[:0], tag, of, after.since, user)
		t.b.Set(t.key, nil)
	}
}

// moveStanding moves a block or mute through its list and returns what it adds to the list's length.
func (t *txn) moveStanding(p *pair, tag projections.Tag, before, after *standing) int64 {
	was, is := before.holds(), after.holds()
	if was == is && (!is || before.since() == after.since()) {
		return 0
	}
	if was {
		t.key = listKey(t.key[:0], tag, p.a, before.since(), p.b)
		t.b.Delete(t.key)
	}
	if is {
		t.key = listKey(t.key[:0], tag, p.a, after.since(), p.b)
		t.b.Set(t.key, nil)
	}
	return delta(was, is)
}

// writeEdge writes the edge itself and its reverse row, and returns what it adds to the edges by which nobody is followed. When
// no backfill can come any more, an edge by which nothing holds is forgotten with its board edges: all that it held was for
// late history to lose against.
func (t *txn) writeEdge(p *pair, was, is bool) (others int64, err error) {
	showed := was || p.before.implicit != 0
	shows := is || p.after.implicit != 0
	e := &p.after
	if t.b.BackfillsClosed() && !shows && !e.block.holds() && !e.mute.holds() && !e.blockedBy {
		if err := t.forgetBoardEdges(p); err != nil {
			return 0, err
		}
		*e = edge{}
	}
	existed, exists := p.before != (edge{}), *e != (edge{})
	had, has := existed && !showed, exists && !shows
	if had != has {
		t.key = projections.AppendKey(t.key[:0], tagReverse, p.b, p.a)
		if has {
			t.b.Set(t.key, nil)
		} else {
			t.b.Delete(t.key)
		}
	}
	t.key, t.value = projections.AppendKey(t.key[:0], tagEdge, p.a, p.b), t.value[:0]
	if exists {
		t.value = e.append(t.value)
	}
	if !existed && !exists {
		return 0, nil
	}
	if s := hotOf(t.b.Hot()); s != nil {
		s.touched(p.a, t.b.Version())
	}
	t.put(t.key, t.value)
	return delta(had, has), nil
}

func (t *txn) forgetBoardEdges(p *pair) error {
	if !p.after.boards {
		return nil
	}
	boards, err := t.boardEdges(p)
	for _, id := range boards {
		t.key = boardEdgeKey(t.key[:0], p.a, p.b, id)
		t.b.Delete(t.key)
	}
	return err
}

// writeBoardEdge writes one board edge if it changed.
func (t *txn) writeBoardEdge(p *pair, id string, before, after boardEdge) {
	if before == after {
		return
	}
	t.key = boardEdgeKey(t.key[:0], p.a, p.b, id)
	t.value = after.append(t.value[:0])
	if bytes.Equal(t.value, []byte{0}) {
		t.b.Delete(t.key)
		return
	}
	t.b.Set(t.key, t.value)
}
