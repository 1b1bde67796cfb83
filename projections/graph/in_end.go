package graph

import "github.com/skein-feed/skein/projections"

// writeInBoardEdge updates the lists of the board and their lengths, and the row in
// tagUnlistedInBoardEdges if no list shows the follower. explicitBefore and explicitAfter say
// whether the follower follows the owner of the board explicitly.
func (t *eventFold) writeInBoardEdge(
	e *edgeEnd, c *boardEdgeChange, explicitBefore, explicitAfter bool,
) error {
	isUnlisted := func(facts *boardEdge, r relation) bool {
		return *facts != (boardEdge{}) && r.kind == relationNone
	}
	t.key = projections.AppendKey(t.key[:0], tagUnlistedInBoardEdges, e.followee, c.board, e.follower)
	t.updateUnlistedRow(isUnlisted(&c.before, c.relationBefore), isUnlisted(&c.after, c.relationAfter))

	t.updateBoardListRow(c, func(dst []byte, r relation) []byte {
		tag := tagBoardFollowers
		if r.kind == relationExclude {
			tag = tagBoardExcluders
		}
		return appendListKeyOfBoard(dst, tag, e.followee, c.board, r.since, e.follower)
	})

	followedBefore := c.relationBefore.kind == relationFollow
	followsAfter := c.relationAfter.kind == relationFollow
	excludedBefore := c.relationBefore.kind == relationExclude
	excludesAfter := c.relationAfter.kind == relationExclude
	return t.updateBoardCounts(e.followee, c.board, boardDelta{
		boardFollowersIndex:     lengthChange(followedBefore, followsAfter),
		boardExcludersIndex:     lengthChange(excludedBefore, excludesAfter),
		boardFollowersOnlyIndex: lengthChange(followedBefore && !explicitBefore, followsAfter && !explicitAfter),
	})
}

// writeInEnd writes the in-end: the edge, the lists of the followee's followers, and their lengths.
func (t *eventFold) writeInEnd(e *edgeEnd, explicitBefore, explicitAfter state) error {
	t.updateListRow(tagFollowersExplicit, e.followee, e.follower, explicitBefore, explicitAfter)
	t.updateListRow(tagFollowersImplicit, e.followee, e.follower,
		e.before.implicitState(), e.after.implicitState())

	t.key = projections.AppendKey(t.key[:0], tagUnlistedInEdges, e.followee, e.follower)
	t.updateUnlistedRow(e.before.isUnlisted(), e.after.isUnlisted())

	t.writeEdge(e)

	return t.updateUserCounts(e.followee, userDelta{
		followersIndex:         lengthChange(explicitBefore.holds, explicitAfter.holds),
		followersImplicitIndex: lengthChange(e.before.implicitSince != 0, e.after.implicitSince != 0),
	})
}

// updateUnlistedRow writes or deletes the row with the key t.key in tagUnlistedInEdges or
// tagUnlistedInBoardEdges.
func (t *eventFold) updateUnlistedRow(neededBefore, neededAfter bool) {
	switch {
	case neededAfter && !neededBefore:
		t.batch.Set(t.key, nil)
	case neededBefore && !neededAfter:
		t.batch.Delete(t.key)
	}
}
