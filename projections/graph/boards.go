package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// A board that was ever deleted has a row in every store: what it says decides at both ends of an edge which events are void.

// lifeKey appends the key of the row of a deleted board. The end of its owner finds it by the first hash.
func (t *txn) lifeKey(dst []byte, owner, id string) []byte {
	dst = hashedKey(dst, tagBoardLife, t.b.KeyedHash(owner))
	t.value = events.AppendID(events.AppendID(t.value[:0], owner), id)
	hash := t.b.KeyedHash(string(t.value))
	return append(dst, hash[:]...)
}

// life is the value of such a row, in one byte.
type life byte

const (
	// neverDeleted boards have no row.
	neverDeleted life = iota
	deleted
	// livesAgain boards were created again after their deletion. The row stays, because backfills are still void: all history comes
	// before the deletion.
	livesAgain
)

func (t *txn) readLife(owner, id string) (life, error) {
	t.key = t.lifeKey(t.key[:0], owner, id)
	row, ok, err := t.b.Get(t.key)
	if err != nil || !ok {
		return neverDeleted, err
	}
	return decodeLife(row)
}

func decodeLife(row []byte) (life, error) {
	if len(row) != 1 || life(row[0]) != deleted && life(row[0]) != livesAgain {
		return 0, errRow("board life", row)
	}
	return life(row[0]), nil
}

func (t *txn) writeLife(owner, id string, l life) {
	t.key = t.lifeKey(t.key[:0], owner, id)
	t.b.Set(t.key, []byte{byte(l)})
}

// gone reports whether an event about a board is void. A live event is void from the deletion of the board until its next creation.
// A backfilled event is void if the board was ever deleted, because history comes before every deletion.
func (t *txn) gone(owner, id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	l, err := t.readLife(owner, id)
	return l == deleted || l == livesAgain && t.ev.Backfill, err
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

// mention creates a board if this event is its first mention. The caller has checked that the event is not void. Events may mention a
// board before its creation arrives, or without one.
func (t *txn) mention(owner, id string) error {
	if id == "" {
		return nil
	}
	b, err := readBoard(t.b, t.key[:0], owner, id)
	if err != nil {
		return err
	}
	return t.begin(owner, id, &b)
}

// pinned counts a pin on a board as a mention of the board, and reports whether the board exists afterwards.
func (t *txn) pinned() (exists bool, err error) {
	gone, err := t.gone(t.ev.User, t.ev.Board)
	if err != nil || gone || t.outOnly || !t.holds(t.ev.User) {
		return !gone, err
	}
	return true, t.mention(t.ev.User, t.ev.Board)
}

// begin sets the creation time of a board, if the event begins its life: the first live mention, or an earlier backfilled one.
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

// writeBoard writes the row of a board and its entry in the list of its owner.
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

// boardCreated creates a board, or creates it again after its deletion, and gives it a title if this is the latest creation.
func (t *txn) boardCreated() error {
	owner, id := t.ev.User, t.ev.Board
	l, err := t.readLife(owner, id)
	if err != nil || l != neverDeleted && t.ev.Backfill {
		return err
	}
	if l == deleted {
		t.writeLife(owner, id, livesAgain)
	}
	if t.outOnly || !t.holds(owner) {
		return nil
	}
	b, err := readBoard(t.b, t.key[:0], owner, id)
	if err != nil {
		return err
	}
	if err := t.begin(owner, id, &b); err != nil {
		return err
	}
	// Backfills may have equal times and arrive in any order. Their encodings decide then, so that every order ends with one title (I5).
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

// boardRelation folds a follow or unfollow of one board. An unfollow of a board whose owner the user follows is an exclusion.
func (t *txn) boardRelation() error {
	gone, err := t.gone(t.ev.Peer, t.ev.Board)
	if err != nil || gone {
		return err
	}
	return t.both(t.ev.User, t.ev.Peer, (*txn).boardEvent)
}

// boardEvent changes one board edge at one end.
func (t *txn) boardEvent(h *half) error {
	id, follows := t.ev.Board, t.ev.Kind == events.BoardFollowed
	if follows && !t.ev.Backfill && h.before.blockedLive() {
		return nil
	}
	if h.end == inEnd {
		if err := t.mention(h.b, id); err != nil {
			return err
		}
	}
	before, err := readBoardEdge(t.b, t.key[:0], h.end, h.a, h.b, id)
	if err != nil {
		return err
	}
	e, owner := before, &h.before
	switch {
	case follows && t.ev.Backfill:
		e.followBackfill = max(e.followBackfill, t.at)
	case t.ev.Backfill:
		e.unfollowBackfill = max(e.unfollowBackfill, t.at)
	case follows && e.followLive <= max(e.unfollowLive, owner.renewedAfter()):
		e.followLive = t.at // else a repeat, which is not newer
	case !follows && e.unfollowLive <= max(e.followLive, owner.followLive, owner.renewedAfter()):
		e.unfollowLive = t.at
	}
	if e == before {
		return nil
	}
	h.after.boards = true
	h.changes = append(h.changes, change{id, before, e, before.relation(owner), e.relation(&h.after)})
	return t.write(h)
}

// boardDeleted ends a board and, in steps, all relations to it. The rows that say that the board is deleted are written last: a fold that
// was interrupted folds the event again, and finds the rest of its work in the rows that are left.
func (t *txn) boardDeleted() error {
	owner, id := t.ev.User, t.ev.Board
	end := func(e end, cut func([]byte) (string, error)) func([]byte) error {
		return func(rest []byte) error {
			follower, err := cut(rest)
			if err != nil {
				return err
			}
			return t.one(e, follower, owner, (*txn).endBoardEdge)
		}
	}
	held := !t.outOnly && t.holds(owner)
	if held {
		for _, tag := range []projections.Tag{tagBoardFollowers, tagBoardExcluders, tagBoardReverse} {
			if err := t.drain(projections.AppendKey(nil, tag, owner, id), end(inEnd, cutOf(tag))); err != nil {
				return err
			}
		}
	}
	if err := t.drain(projections.AppendKey(nil, tagBoardRegion, owner, id), end(outEnd, cutRemote)); err != nil {
		return err
	}
	if held {
		b, err := readBoard(t.b, t.key[:0], owner, id)
		if err != nil {
			return err
		}
		if err := t.writeBoard(owner, id, b, board{}); err != nil {
			return err
		}
	}
	t.writeLife(owner, id, deleted)
	return nil
}

// endBoardEdge ends the relation of a follower to a board that is being deleted. It removes the facts too, because all of them are
// older than the deletion.
func (t *txn) endBoardEdge(h *half) error {
	before, err := readBoardEdge(t.b, t.key[:0], h.end, h.a, h.b, t.ev.Board)
	if err != nil {
		return err
	}
	h.changes = append(h.changes, change{board: t.ev.Board, before: before, old: before.relation(&h.before)})
	return t.write(h)
}
