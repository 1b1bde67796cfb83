package graph

import "github.com/skein-feed/skein/events"

// The flags in the rows of regions say how the follower follows, so that a fold that walks over a
// region need not read the edges. Most rows are those of followers, so no flag stands for a follow,
// and such a row has no value.
const (
	// regionNotFollowed says that the follower does not follow the owner of the region explicitly.
	// In the region of a board, it says that the follower does not follow the board.
	regionNotFollowed = 1 << 0
	// regionBoardsOnly says that the follower follows the owner implicitly.
	regionBoardsOnly = 1 << 1
	// regionFlagBits is the number of flags.
	regionFlagBits = 2
)

// regionFlags returns the flags of the edge's row in the region of the followee.
func (e *edge) regionFlags() (flags byte) {
	if _, explicit := e.explicitSince(); !explicit {
		flags |= regionNotFollowed
	}
	if e.implicitSince != 0 {
		flags |= regionBoardsOnly
	}
	return flags
}

// updateRegionRow writes or deletes the row with the key f.key in a region, if it changes. The row
// exists as long as the edge or board edge to which it leads.
func (f *eventFold) updateRegionRow(existedBefore, existsAfter bool, flagsBefore, flagsAfter byte) {
	switch {
	case !existsAfter && existedBefore:
		f.batch.Delete(f.key)
	case existsAfter && (!existedBefore || flagsBefore != flagsAfter):
		f.value = f.value[:0]
		if flagsAfter != 0 {
			f.value = append(f.value, flagsAfter)
		}
		f.batch.Set(f.key, f.value)
	}
}

// writeOutBoardEdge updates the region of the board and the lists of the follower.
func (f *eventFold) writeOutBoardEdge(change *edgeChange, boardChange *boardEdgeChange) {
	flags := func(relation boardRelation) byte {
		if relation.kind == relationFollow {
			return 0
		}
		return regionNotFollowed
	}
	f.key = appendBoardRegionKey(f.key[:0], change.followee, boardChange.board, change.follower)
	f.updateRegionRow(boardChange.before != boardEdge{}, boardChange.after != boardEdge{},
		flags(boardChange.relationBefore), flags(boardChange.relationAfter))

	if f.outEndsOnly {
		return
	}
	f.updateBoardListRow(boardChange, func(dst []byte, relation boardRelation) []byte {
		tag := tagFollowedBoards
		if relation.kind == relationExclude {
			tag = tagExcludedBoards
		}
		return appendBoardEntryKey(dst, tag, change.follower, relation.since, change.followee, boardChange.board)
	})
}

// writeOutEnd writes the rows that only the out-end has, and the edge: it updates the row in the
// region of the followee, the lists of the follower, and their lengths. Then it calls the observer.
func (f *eventFold) writeOutEnd(change *edgeChange, explicitBefore, explicitAfter userRelation) error {
	f.key = appendRegionKey(f.key[:0], change.followee, change.follower)
	f.updateRegionRow(change.before != edge{}, change.after != edge{},
		change.before.regionFlags(), change.after.regionFlags())

	if change.before != change.after {
		f.invalidateCache(change.follower)
	}
	f.writeEdgeRow(change)

	// A graph of out-ends has these three lists, too, and no others.
	f.updateListRow(tagFavorites, change.follower, change.followee,
		change.before.followWithSetting(events.SettingFavorite), change.after.followWithSetting(events.SettingFavorite))
	f.updateListRow(tagNotifying, change.follower, change.followee,
		change.before.followWithSetting(events.SettingNotify), change.after.followWithSetting(events.SettingNotify))
	f.updateTimedMuteRow(change)

	if !f.outEndsOnly {
		if err := f.writeOutLists(change, explicitBefore, explicitAfter); err != nil {
			return err
		}
	}
	return f.notifyObserver(change, explicitBefore.holds, explicitAfter.holds)
}

// invalidateCache tells the query cache that the edges of the user are different in the views that
// include this batch, so that cached answers from before it do not count for them.
func (f *eventFold) invalidateCache(user string) {
	cache := relationsCacheOf(f.batch.QueryCache())
	if cache == nil {
		return
	}
	if id, ok := cacheIDOf(user, cache.Seed); ok {
		cache.MarkChanged(id.hash, f.batch.Version())
	}
}

// writeOutLists updates the lists of the follower and their lengths. The edge must be written
// already, because a list of follows that becomes long is written from the edges.
func (f *eventFold) writeOutLists(change *edgeChange, explicitBefore, explicitAfter userRelation) error {
	f.updateListRow(tagFollowingImplicit, change.follower, change.followee,
		change.before.implicitFollow(), change.after.implicitFollow())

	blockedBefore := change.before.block.relation()
	blockedAfter := change.after.block.relation()
	f.updateListRow(tagBlocked, change.follower, change.followee, blockedBefore, blockedAfter)

	mutedBefore := change.before.mute.endlessMute()
	mutedAfter := change.after.mute.endlessMute()
	f.updateListRow(tagMuted, change.follower, change.followee, mutedBefore, mutedAfter)

	settingsBefore := change.before.followSettings()
	settingsAfter := change.after.followSettings()
	delta := userDelta{
		followingIndex:         lengthChange(explicitBefore.holds, explicitAfter.holds),
		followingImplicitIndex: lengthChange(change.before.implicitSince != 0, change.after.implicitSince != 0),
		blockedIndex:           lengthChange(blockedBefore.holds, blockedAfter.holds),
		mutedIndex:             lengthChange(mutedBefore.holds, mutedAfter.holds),
		timedMutesIndex:        lengthChange(change.before.mute.hasTimedEnd(), change.after.mute.hasTimedEnd()),
		unlistedEdgesIndex:     lengthChange(change.before.isUnlisted(), change.after.isUnlisted()),
		favoritesIndex: lengthChange(
			settingsBefore.Has(events.SettingFavorite), settingsAfter.Has(events.SettingFavorite)),
		notifyingIndex: lengthChange(
			settingsBefore.Has(events.SettingNotify), settingsAfter.Has(events.SettingNotify)),
	}
	for i := range change.boardChanges {
		boardChange := &change.boardChanges[i]
		delta[followedBoardsIndex] += lengthChange(
			boardChange.relationBefore.kind == relationFollow, boardChange.relationAfter.kind == relationFollow)
		delta[excludedBoardsIndex] += lengthChange(
			boardChange.relationBefore.kind == relationExclude, boardChange.relationAfter.kind == relationExclude)
	}
	return f.updateFollowerCounts(change, delta, explicitBefore, explicitAfter)
}
