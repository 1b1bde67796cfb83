package graph

import "github.com/skein-feed/skein/projections"

// mention reads a board and creates it if this event is its first mention. It does not exist afterwards only if
// it is deleted: then the event is void, since a live one is ignored until the board is created again, and a
// backfilled one is before the deletion.
func (t *txn) mention(owner, id string) (b board, exists bool, err error) {
	if id == "" {
		return b, true, nil
	}
	b, err = readBoard(t.b, t.key[:0], owner, id)
	if err != nil || b.deleted != 0 && (t.ev.Backfill || !b.exists()) {
		return b, false, err
	}
	return b, true, t.begin(owner, id, &b)
}

// pinned takes a pin that is put on a board for a mention, and reports whether the board exists then.
func (t *txn) pinned() (bool, error) {
	_, exists, err := t.mention(t.ev.User, t.ev.Board)
	return exists, err
}

// begin makes the event the beginning of the board's life if it is.
func (t *txn) begin(owner, id string, b *board) error {
	before := *b
	switch {
	case !t.ev.Backfill && !b.exists():
		b.createdLive = t.at
	case t.ev.Backfill && (b.createdBackfill == 0 || t.at < b.createdBackfill):
		b.createdBackfill = t.at
	default:
		return nil
	}
	return t.writeBoard(owner, id, before, *b)
}

// writeBoard writes the row of a board and its place in the list of its owner.
func (t *txn) writeBoard(owner, id string, before, after board) error {
	was, is := before.exists(), after.exists()
	if was != is || (is && before.created() != after.created()) {
		if was {
			t.key = listKey(t.key[:0], tagBoards, owner, before.created(), id)
			t.b.Delete(t.key)
		}
		if is {
			t.key = listKey(t.key[:0], tagBoards, owner, after.created(), id)
			t.b.Set(t.key, nil)
		}
		if err := t.countUser(owner, userDelta{4: delta(was, is)}); err != nil {
			return err
		}
	}
	t.key = projections.AppendKey(t.key[:0], tagBoard, owner, id)
	if after == (board{}) {
		t.b.Delete(t.key)
		return nil
	}
	t.value = after.append(t.value[:0])
	t.b.Set(t.key, t.value)
	return nil
}

// boardCreated begins a board, also again after its deletion, or gives it a title.
func (t *txn) boardCreated() error {
	owner, id := t.ev.User, t.ev.Board
	b, err := readBoard(t.b, t.key[:0], owner, id)
	if err != nil || (t.ev.Backfill && b.deleted != 0) {
		return err
	}
	if err := t.begin(owner, id, &b); err != nil {
		return err
	}
	encoded := string(t.ev.Encoded)
	if t.at < b.titled || (t.at == b.titled && encoded <= b.titleEncoded) {
		return nil
	}
	before := b
	b.titled, b.title, b.titleEncoded = t.at, t.ev.Title, ""
	if t.ev.Backfill {
		b.titleEncoded = encoded
	}
	return t.writeBoard(owner, id, before, b)
}

// boardFollowed: A follows board b of B.
func (t *txn) boardFollowed() error {
	p, err := t.read(t.ev.User, t.ev.Peer)
	if err != nil || (!t.ev.Backfill && p.before.blockedLive()) {
		return err
	}
	return t.boardEvent(p, func(be *boardEdge, deleted stamp) {
		switch {
		case t.ev.Backfill:
			be.followBackfill = max(be.followBackfill, t.at)
		case be.followLive <= max(be.unfollowLive, p.before.unfollowLive, deleted):
			be.followLive = t.at // else a repeat, which is not newer
		}
	})
}

// boardUnfollowed: A no longer follows board b of B, or excludes it while following B.
func (t *txn) boardUnfollowed() error {
	p, err := t.read(t.ev.User, t.ev.Peer)
	if err != nil {
		return err
	}
	return t.boardEvent(p, func(be *boardEdge, deleted stamp) {
		switch {
		case t.ev.Backfill:
			be.unfollowBackfill = max(be.unfollowBackfill, t.at)
		case be.unfollowLive <= max(be.followLive, p.before.followLive, p.before.unfollowLive, deleted):
			be.unfollowLive = t.at
		}
	})
}

// boardEvent changes one board edge of a pair, unless the board is deleted.
func (t *txn) boardEvent(p *pair, change func(be *boardEdge, deleted stamp)) error {
	id := t.ev.Board
	b, exists, err := t.mention(p.b, id)
	if err != nil || !exists {
		return err
	}
	before, err := readBoardEdge(t.b, t.key[:0], p.a, p.b, id)
	if err != nil {
		return err
	}
	after := before
	change(&after, b.deleted)
	if after == before {
		return nil
	}
	p.after.boards = true
	t.writeBoardEdge(p, id, before, after)
	return t.writeRelation(p, id, before.relation(&p.before, b.deleted), after.relation(&p.after, b.deleted))
}

func (t *txn) writeRelation(p *pair, id string, old, now relation) error {
	p.changes = append(p.changes, change{id, old, now})
	return t.write(p)
}

// boardDeleted ends a board and, in steps, the relations to it. Its row goes last: until then a fold that was cut
// finds the rest of its work in the lists that are left.
func (t *txn) boardDeleted() error {
	owner, id := t.ev.User, t.ev.Board
	for _, tag := range []projections.Tag{tagBoardFollowers, tagBoardExcluders} {
		prefix := projections.AppendKey(nil, tag, owner, id)
		err := t.drain(prefix, func(rest []byte) error {
			follower, err := cutListUser(rest)
			if err != nil {
				return err
			}
			return t.endBoardRelation(follower, owner, id)
		})
		if err != nil {
			return err
		}
	}
	b, err := readBoard(t.b, t.key[:0], owner, id)
	if err != nil {
		return err
	}
	return t.writeBoard(owner, id, b, board{deleted: t.at})
}

// endBoardRelation ends what a follower has with a board that is being deleted. The facts go with it: all that
// they could say is before the deletion.
func (t *txn) endBoardRelation(follower, owner, id string) error {
	p, err := t.read(follower, owner)
	if err != nil {
		return err
	}
	be, err := readBoardEdge(t.b, t.key[:0], follower, owner, id)
	if err != nil {
		return err
	}
	b, err := readBoard(t.b, t.key[:0], owner, id)
	if err != nil {
		return err
	}
	t.writeBoardEdge(p, id, be, boardEdge{})
	return t.writeRelation(p, id, be.relation(&p.before, b.deleted), relation{})
}
