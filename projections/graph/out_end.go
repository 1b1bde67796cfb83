package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The flags in the rows of regions. They spare a fold that walks over a region the read of the
// edge. Most rows have no flag, and then no value.
const (
	// regionNotFollowed: the follower does not follow the user explicitly. In the region of a
	// board: does not follow the board.
	regionNotFollowed = 1 << 0
	// regionBoardsOnly: the follower follows boards of the user, and not the user.
	regionBoardsOnly = 1 << 1
	// regionFlagBits is the number of flags.
	regionFlagBits = 2
)

func (e *edge) regionFlags() (flags byte) {
	if _, explicit := e.explicitSince(); !explicit {
		flags |= regionNotFollowed
	}
	if e.implicitSince != 0 {
		flags |= regionBoardsOnly
	}
	return flags
}

// updateRegionRow writes or deletes the row with the key t.key in a region, if it changes. The row
// exists while the edge or board edge that it leads to does.
func (t *eventFold) updateRegionRow(existedBefore, existsAfter bool, flagsBefore, flagsAfter byte) {
	switch {
	case !existsAfter && existedBefore:
		t.batch.Delete(t.key)
	case existsAfter && (!existedBefore || flagsBefore != flagsAfter):
		t.value = t.value[:0]
		if flagsAfter != 0 {
			t.value = append(t.value, flagsAfter)
		}
		t.batch.Set(t.key, t.value)
	}
}

// writeOutBoardEdge updates the region of the board and the lists of the follower.
func (t *eventFold) writeOutBoardEdge(e *edgeEnd, c *boardEdgeChange) {
	flags := func(r relation) byte {
		if r.kind == relationFollow {
			return 0
		}
		return regionNotFollowed
	}
	t.key = appendBoardRegionKey(t.key[:0], e.followee, c.board, e.follower)
	t.updateRegionRow(c.before != boardEdge{}, c.after != boardEdge{},
		flags(c.relationBefore), flags(c.relationAfter))

	if t.outEndsOnly {
		return
	}
	t.updateBoardListRow(c, func(dst []byte, r relation) []byte {
		tag := tagFollowedBoards
		if r.kind == relationExclude {
			tag = tagExcludedBoards
		}
		return appendBoardListKey(dst, tag, e.follower, r.since, e.followee, c.board)
	})
}

// writeOutEnd writes the out-end: the edge, its row in the region of the followee, the lists of the
// follower, and their lengths.
func (t *eventFold) writeOutEnd(e *edgeEnd, explicitBefore, explicitAfter state) error {
	t.key = appendRegionKey(t.key[:0], e.followee, e.follower)
	t.updateRegionRow(e.before != edge{}, e.after != edge{}, e.before.regionFlags(), e.after.regionFlags())

	if e.before != e.after {
		t.invalidateCache(e.follower)
	}
	t.writeEdge(e)
	t.updateListRow(tagFavorites, e.follower, e.followee,
		e.before.settingState(events.SettingFavorite), e.after.settingState(events.SettingFavorite))
	t.updateListRow(tagNotifying, e.follower, e.followee,
		e.before.settingState(events.SettingNotify), e.after.settingState(events.SettingNotify))
	t.updateTimedMuteRow(e)

	if !t.outEndsOnly {
		if err := t.writeOutLists(e, explicitBefore, explicitAfter); err != nil {
			return err
		}
	}
	return t.notifyObserver(e, explicitBefore.holds, explicitAfter.holds)
}

// invalidateCache tells the query cache that the edges of the user change with the next view.
func (t *eventFold) invalidateCache(user string) {
	cache := relationsCacheOf(t.batch.QueryCache())
	if cache == nil {
		return
	}
	if id, ok := cacheIDOf(user, cache.Seed); ok {
		cache.MarkChanged(id.hash, t.batch.Version())
	}
}

// writeOutLists updates the lists of the follower and their lengths. The edge must be written
// already, because a list of follows that becomes long is written from the edges.
func (t *eventFold) writeOutLists(e *edgeEnd, explicitBefore, explicitAfter state) error {
	t.updateListRow(tagFollowingImplicit, e.follower, e.followee,
		e.before.implicitState(), e.after.implicitState())

	d := userDelta{
		followingIndex:         lengthChange(explicitBefore.holds, explicitAfter.holds),
		followingImplicitIndex: lengthChange(e.before.implicitSince != 0, e.after.implicitSince != 0),
		blockedIndex:           t.updateBlockRow(e, tagBlocked, &e.before.block, &e.after.block),
		otherEdgesIndex:        lengthChange(e.before.isUnlisted(), e.after.isUnlisted()),
	}
	mutedBefore, mutedAfter := e.before.mute.endlessState(), e.after.mute.endlessState()
	t.updateListRow(tagMuted, e.follower, e.followee, mutedBefore, mutedAfter)
	d[mutedIndex] = lengthChange(mutedBefore.holds, mutedAfter.holds)
	d[timedMutesIndex] = lengthChange(e.before.mute.hasTimedEnd(), e.after.mute.hasTimedEnd())
	d[favoritesIndex] = lengthChange(
		e.before.followSettings().Has(events.SettingFavorite), e.after.followSettings().Has(events.SettingFavorite))
	d[notifyingIndex] = lengthChange(
		e.before.followSettings().Has(events.SettingNotify), e.after.followSettings().Has(events.SettingNotify))
	for i := range e.boardChanges {
		c := &e.boardChanges[i]
		d[followedBoardsIndex] += lengthChange(
			c.relationBefore.kind == relationFollow, c.relationAfter.kind == relationFollow)
		d[excludedBoardsIndex] += lengthChange(
			c.relationBefore.kind == relationExclude, c.relationAfter.kind == relationExclude)
	}
	return t.updateFollowerCounts(e, d, explicitBefore, explicitAfter)
}

// updateBlockRow updates the row of a block in its list, and returns the change of the length of
// the list.
func (t *eventFold) updateBlockRow(e *edgeEnd, tag projections.Tag, before, after *toggle) int64 {
	stateBefore := before.state()
	stateAfter := after.state()
	t.updateListRow(tag, e.follower, e.followee, stateBefore, stateAfter)
	return lengthChange(stateBefore.holds, stateAfter.holds)
}
