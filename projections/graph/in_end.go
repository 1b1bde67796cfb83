package graph

import "github.com/skein-feed/skein/projections"

// writeInBoardEdge updates the lists of a board and their lengths, and the row in
// tagUnlistedInBoardEdges, which exists while the board edge is in neither list. explicitBefore and
// explicitAfter say whether the follower follows the owner of the board explicitly.
func (f *eventFold) writeInBoardEdge(
	change *edgeChange, boardChange *boardEdgeChange, explicitBefore, explicitAfter bool,
) error {
	isUnlisted := func(facts *boardEdge, relation boardRelation) bool {
		return *facts != (boardEdge{}) && relation.kind == relationNone
	}
	unlistedBefore := isUnlisted(&boardChange.before, boardChange.relationBefore)
	unlistedAfter := isUnlisted(&boardChange.after, boardChange.relationAfter)
	f.key = projections.AppendKey(f.key[:0], tagUnlistedInBoardEdges,
		change.followee, boardChange.board, change.follower)
	f.updateUnlistedRow(unlistedBefore, unlistedAfter)

	f.updateBoardListRow(boardChange, func(dst []byte, relation boardRelation) []byte {
		tag := tagBoardFollowers
		if relation.kind == relationExclude {
			tag = tagBoardExcluders
		}
		return appendListOfBoardKey(dst, tag, change.followee, boardChange.board, relation.since, change.follower)
	})

	followedBefore := boardChange.relationBefore.kind == relationFollow
	followsAfter := boardChange.relationAfter.kind == relationFollow
	excludedBefore := boardChange.relationBefore.kind == relationExclude
	excludesAfter := boardChange.relationAfter.kind == relationExclude
	return f.updateBoardCounts(change.followee, boardChange.board, boardDelta{
		boardFollowersIndex:     lengthChange(followedBefore, followsAfter),
		boardExcludersIndex:     lengthChange(excludedBefore, excludesAfter),
		boardOnlyFollowersIndex: lengthChange(followedBefore && !explicitBefore, followsAfter && !explicitAfter),
	})
}

// writeInEnd writes the rows that only the in-end has, and the edge: it updates the lists of the
// followee's followers, their lengths, and the row in tagUnlistedInEdges.
func (f *eventFold) writeInEnd(change *edgeChange, explicitBefore, explicitAfter userRelation) error {
	f.updateListRow(tagFollowersExplicit, change.followee, change.follower, explicitBefore, explicitAfter)
	f.updateListRow(tagFollowersImplicit, change.followee, change.follower,
		change.before.implicitFollow(), change.after.implicitFollow())

	f.key = projections.AppendKey(f.key[:0], tagUnlistedInEdges, change.followee, change.follower)
	f.updateUnlistedRow(change.before.isUnlisted(), change.after.isUnlisted())

	f.writeEdgeRow(change)

	return f.updateUserCounts(change.followee, userDelta{
		followersIndex:         lengthChange(explicitBefore.holds, explicitAfter.holds),
		followersImplicitIndex: lengthChange(change.before.implicitSince != 0, change.after.implicitSince != 0),
	})
}

// updateUnlistedRow writes or deletes the row with the key f.key in tagUnlistedInEdges or
// tagUnlistedInBoardEdges, by which deletions find an in-end that is in no list.
func (f *eventFold) updateUnlistedRow(unlistedBefore, unlistedAfter bool) {
	switch {
	case unlistedAfter && !unlistedBefore:
		f.batch.Set(f.key, nil)
	case unlistedBefore && !unlistedAfter:
		f.batch.Delete(f.key)
	}
}
