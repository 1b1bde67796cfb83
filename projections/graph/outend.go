package graph

import "github.com/skein-feed/skein/projections"

// The flags of rows of regions: what a fold that walks one need not read the edge for. Most rows have none, and no value.
const (
	// regionNot: the follower does not follow explicitly; of a board, does not follow it.
	regionNotFollowed = 1 << 0
	// regionBoards: the follower follows boards of the user, and not the user.
	regionBoardsOnly = 1 << 1
	// regionFlags is how many there are.
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

// moveRegion writes the row of a region of an edge or board edge, in t.key, if it is not what it was.
func (t *txn) updateRegionRow(existed, exists bool, was, is byte) {
	switch {
	case !exists && existed:
		t.batch.Delete(t.key)
	case exists && (!existed || was != is):
		t.value = t.value[:0]
		if is != 0 {
			t.value = append(t.value, is)
		}
		t.batch.Set(t.key, t.value)
	}
}

// writeOutBoard moves a board edge of the out-end through the region of the board and the lists of the follower.
func (t *txn) writeOutBoardEdge(h *edgeEnd, c *boardEdgeChange) {
	flags := func(r relation) byte {
		if r.kind == relationFollow {
			return 0
		}
		return regionNotFollowed
	}
	t.key = boardRegionKey(t.key[:0], h.followee, c.board, h.follower)
	t.updateRegionRow(c.before != boardEdge{}, c.after != boardEdge{}, flags(c.relationBefore), flags(c.relationAfter))
	if t.outEndsOnly {
		return
	}
	t.moveBoardListRow(c, func(dst []byte, r relation) []byte {
		tag := tagFollowedBoards
		if r.kind == relationExclude {
			tag = tagExcludedBoards
		}
		return boardListKey(dst, tag, h.follower, r.since, h.followee, c.board)
	})
}

// writeOut writes the out-end: the edge, the row that leads to it, the lists of the follower and their lengths.
func (t *txn) writeOutEnd(h *edgeEnd, was, is state) error {
	t.key = regionKey(t.key[:0], h.followee, h.follower)
	t.updateRegionRow(h.before != edge{}, h.after != edge{}, h.before.regionFlags(), h.after.regionFlags())
	if h.before != h.after {
		if s := relationsCacheOf(t.batch.QueryCache()); s != nil {
			if id, ok := cacheIDOf(h.follower, s.Seed); ok {
				s.Changed(id.hash, t.batch.Version())
			}
		}
	}
	t.writeEdge(h, tagEdge)
	if t.outEndsOnly {
		return t.notifyObserver(h, was.holds, is.holds)
	}
	t.moveListRow(tagFollowingImplicit, h.follower, h.followee, h.before.implicitState(), h.after.implicitState())
	d := userDelta{
		0: lengthChange(was.holds, is.holds),
		1: lengthChange(h.before.implicitSince != 0, h.after.implicitSince != 0),
		7: t.moveToggleRow(h, tagBlocked, &h.before.block, &h.after.block),
		8: t.moveToggleRow(h, tagMuted, &h.before.mute, &h.after.mute),
		9: lengthChange(h.before.isUnlisted(), h.after.isUnlisted()),
	}
	for i := range h.boardChanges {
		c := &h.boardChanges[i]
		d[5] += lengthChange(c.relationBefore.kind == relationFollow, c.relationAfter.kind == relationFollow)
		d[6] += lengthChange(c.relationBefore.kind == relationExclude, c.relationAfter.kind == relationExclude)
	}
	if err := t.updateFollowerCounts(h, d, was, is); err != nil {
		return err
	}
	return t.notifyObserver(h, was.holds, is.holds)
}

// moveStanding moves a block or mute through its list and returns what it adds to the list's length.
func (t *txn) moveToggleRow(h *edgeEnd, tag projections.Tag, before, after *toggle) int64 {
	was, is := before.state(), after.state()
	t.moveListRow(tag, h.follower, h.followee, was, is)
	return lengthChange(was.holds, is.holds)
}
