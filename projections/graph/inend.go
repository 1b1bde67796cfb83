package graph

import "github.com/skein-feed/skein/projections"

// writeInBoard moves a board edge of the in-end through the lists of the board and their lengths.
func (t *txn) writeInBoard(h *half, c *change, was, is bool) error {
	unlisted := func(e *boardEdge, r relation) bool { return *e != (boardEdge{}) && r.kind == relationNone }
	t.key = projections.AppendKey(t.key[:0], tagBoardReverse, h.b, c.board, h.a)
	t.moveReverse(unlisted(&c.before, c.old), unlisted(&c.after, c.now))
	t.moveBoard(c, func(dst []byte, r relation) []byte {
		tag := tagBoardFollowers
		if r.kind == relationExclude {
			tag = tagBoardExcluders
		}
		return ofBoardKey(dst, tag, h.b, c.board, r.since, h.a)
	})
	follows := func(r relation) bool { return r.kind == relationFollow }
	return t.countBoard(h.b, c.board, boardDelta{
		delta(follows(c.old), follows(c.now)),
		delta(c.old.kind == relationExclude, c.now.kind == relationExclude),
		delta(follows(c.old) && !was, follows(c.now) && !is),
	})
}

// writeIn writes the in-end: the edge, the lists of who is followed and their lengths.
func (t *txn) writeIn(h *half, was, is state) error {
	t.moveRow(tagFollowers, h.b, h.a, was, is)
	t.moveRow(tagFollowersImplicit, h.b, h.a, h.before.implicitly(), h.after.implicitly())
	t.key = projections.AppendKey(t.key[:0], tagReverse, h.b, h.a)
	t.moveReverse(h.before.unlisted(), h.after.unlisted())
	t.writeEdge(h, tagInEdge)
	return t.countUser(h.b, userDelta{
		2: delta(was.holds, is.holds),
		3: delta(h.before.implicit != 0, h.after.implicit != 0),
	})
}

// moveReverse writes the row in t.key, which leads to an edge or board edge that no list shows.
func (t *txn) moveReverse(was, is bool) {
	switch {
	case is && !was:
		t.b.Set(t.key, nil)
	case was && !is:
		t.b.Delete(t.key)
	}
}
