package graph

import "github.com/skein-feed/skein/projections"

// The flags of rows of regions: what a fold that walks one need not read the edge for. Most rows have none, and no value.
const (
	// regionNot: the follower does not follow explicitly; of a board, does not follow it.
	regionNot = 1 << 0
	// regionBoards: the follower follows boards of the user, and not the user.
	regionBoards = 1 << 1
	// regionFlags is how many there are.
	regionFlags = 2
)

func (e *edge) region() (flags byte) {
	if _, explicit := e.explicit(); !explicit {
		flags |= regionNot
	}
	if e.implicit != 0 {
		flags |= regionBoards
	}
	return flags
}

// moveRegion writes the row of a region of an edge or board edge, in t.key, if it is not what it was.
func (t *txn) moveRegion(existed, exists bool, was, is byte) {
	switch {
	case !exists && existed:
		t.b.Delete(t.key)
	case exists && (!existed || was != is):
		t.value = t.value[:0]
		if is != 0 {
			t.value = append(t.value, is)
		}
		t.b.Set(t.key, t.value)
	}
}

// writeOutBoard moves a board edge of the out-end through the region of the board and the lists of the follower.
func (t *txn) writeOutBoard(h *half, c *change) {
	flags := func(r relation) byte {
		if r.kind == relationFollow {
			return 0
		}
		return regionNot
	}
	t.key = boardRegionKey(t.key[:0], h.b, c.board, h.a)
	t.moveRegion(c.before != boardEdge{}, c.after != boardEdge{}, flags(c.old), flags(c.now))
	if t.outOnly {
		return
	}
	t.moveBoard(c, func(dst []byte, r relation) []byte {
		tag := tagFollowedBoards
		if r.kind == relationExclude {
			tag = tagExcludedBoards
		}
		return boardListKey(dst, tag, h.a, r.since, h.b, c.board)
	})
}

// writeOut writes the out-end: the edge, the row that leads to it, the lists of the follower and their lengths.
func (t *txn) writeOut(h *half, was, is state) error {
	t.key = regionKey(t.key[:0], h.b, h.a)
	t.moveRegion(h.before != edge{}, h.after != edge{}, h.before.region(), h.after.region())
	if h.before != h.after {
		if s := cacheOf(t.b.QueryCache()); s != nil {
			if id, ok := cacheIDOf(h.a, s.Seed); ok {
				s.Changed(id.hash, t.b.Version())
			}
		}
	}
	t.writeEdge(h, tagEdge)
	if t.outOnly {
		return t.tell(h, was.holds, is.holds)
	}
	t.moveRow(tagFollowingImplicit, h.a, h.b, h.before.implicitly(), h.after.implicitly())
	d := userDelta{
		0: delta(was.holds, is.holds),
		1: delta(h.before.implicit != 0, h.after.implicit != 0),
		7: t.moveStanding(h, tagBlocked, &h.before.block, &h.after.block),
		8: t.moveStanding(h, tagMuted, &h.before.mute, &h.after.mute),
		9: delta(h.before.unlisted(), h.after.unlisted()),
	}
	for i := range h.changes {
		c := &h.changes[i]
		d[5] += delta(c.old.kind == relationFollow, c.now.kind == relationFollow)
		d[6] += delta(c.old.kind == relationExclude, c.now.kind == relationExclude)
	}
	if err := t.countFollower(h, d, was, is); err != nil {
		return err
	}
	return t.tell(h, was.holds, is.holds)
}

// moveStanding moves a block or mute through its list and returns what it adds to the list's length.
func (t *txn) moveStanding(h *half, tag projections.Tag, before, after *standing) int64 {
	was, is := before.state(), after.state()
	t.moveRow(tag, h.a, h.b, was, is)
	return delta(was.holds, is.holds)
}
