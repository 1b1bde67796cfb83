package graph

import "github.com/skein-feed/skein/projections"

// writeInBoard moves a board edge of the in-end through the lists of the board and their lengths.
func (t *txn) writeInBoardEdge(h *edgeEnd, c *boardEdgeChange, was, is bool) error {
	unlisted := func(e *boardEdge, r relation) bool { return *e != (boardEdge{}) && r.kind == relationNone }
	t.key = projections.AppendKey(t.key[:0], tagBoardReverse, h.followee, c.board, h.follower)
	t.updateReverseRow(unlisted(&c.before, c.relationBefore), unlisted(&c.after, c.relationAfter))
	t.moveBoardListRow(c, func(dst []byte, r relation) []byte {
		tag := tagBoardFollowers
		if r.kind == relationExclude {
			tag = tagBoardExcluders
		}
		return boardFollowerListKey(dst, tag, h.followee, c.board, r.since, h.follower)
	})
	follows := func(r relation) bool { return r.kind == relationFollow }
	return t.updateBoardCounts(h.followee, c.board, boardDelta{
		lengthChange(follows(c.relationBefore), follows(c.relationAfter)),
		lengthChange(c.relationBefore.kind == relationExclude, c.relationAfter.kind == relationExclude),
		lengthChange(follows(c.relationBefore) && !was, follows(c.relationAfter) && !is),
	})
}

// writeIn writes the in-end: the edge, the lists of who is followed and their lengths.
func (t *txn) writeInEnd(h *edgeEnd, was, is state) error {
	t.moveListRow(tagFollowers, h.followee, h.follower, was, is)
	t.moveListRow(tagFollowersImplicit, h.followee, h.follower, h.before.implicitState(), h.after.implicitState())
	t.key = projections.AppendKey(t.key[:0], tagReverse, h.followee, h.follower)
	t.updateReverseRow(h.before.isUnlisted(), h.after.isUnlisted())
	t.writeEdge(h, tagInEdge)
	return t.updateUserCounts(h.followee, userDelta{
		2: lengthChange(was.holds, is.holds),
		3: lengthChange(h.before.implicitSince != 0, h.after.implicitSince != 0),
	})
}

// moveReverse writes the row in t.key, which leads to an edge or board edge that no list shows.
func (t *txn) updateReverseRow(was, is bool) {
	switch {
	case is && !was:
		t.batch.Set(t.key, nil)
	case was && !is:
		t.batch.Delete(t.key)
	}
}
