package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// A board that was ever deleted has a row in every store: what it says decides at both ends of an edge which events are void.

// lifeKey appends the key of the row of a deleted board. The end of its owner finds it by the first hash.
func (t *txn) boardDeletionKey(dst []byte, owner, id string) []byte {
	dst = storeHashKey(dst, tagBoardDeletion, t.batch.KeyedHash(owner))
	t.value = events.AppendID(events.AppendID(t.value[:0], owner), id)
	hash := t.batch.KeyedHash(string(t.value))
	return append(dst, hash[:]...)
}

// life is the value of such a row, in one byte.
type boardDeletion byte

const (
	// neverDeleted boards have no row.
	boardNeverDeleted boardDeletion = iota
	boardDeleted
	// livesAgain boards were created again after their deletion. The row stays, because backfills are still void: all history comes
	// before the deletion.
	boardRecreated
)

func (t *txn) readBoardDeletion(owner, id string) (boardDeletion, error) {
	t.key = t.boardDeletionKey(t.key[:0], owner, id)
	row, ok, err := t.batch.Get(t.key)
	if err != nil || !ok {
		return boardNeverDeleted, err
	}
	return decodeBoardDeletion(row)
}

func decodeBoardDeletion(row []byte) (boardDeletion, error) {
	if len(row) != 1 || boardDeletion(row[0]) != boardDeleted && boardDeletion(row[0]) != boardRecreated {
		return 0, rowError("board life", row)
	}
	return boardDeletion(row[0]), nil
}

func (t *txn) writeBoardDeletion(owner, id string, l boardDeletion) {
	t.key = t.boardDeletionKey(t.key[:0], owner, id)
	t.batch.Set(t.key, []byte{byte(l)})
}

// gone reports whether an event about a board is void. A live event is void from the deletion of the board until its next creation.
// A backfilled event is void if the board was ever deleted, because history comes before every deletion.
func (t *txn) isBoardEventVoid(owner, id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	l, err := t.readBoardDeletion(owner, id)
	return l == boardDeleted || l == boardRecreated && t.ev.Backfill, err
}

func readBoard(r projections.Reader, scratch []byte, owner, id string) (b board, err error) {
	if id == "" {
		return b, nil
	}
	row, ok, err := r.Get(projections.AppendKey(scratch, tagBoard, owner, id))
	if err != nil || !ok {
		return b, err
	}
	return b, b.decodeRow(row)
}

// mention creates a board if this event is its first mention. The caller has checked that the event is not void. Events may mention a
// board before its creation arrives, or without one.
func (t *txn) mentionBoard(owner, id string) error {
	if id == "" {
		return nil
	}
	b, err := readBoard(t.batch, t.key[:0], owner, id)
	if err != nil {
		return err
	}
	return t.setBoardCreated(owner, id, &b)
}

// pinned counts a pin on a board as a mention of the board, and reports whether the board exists afterwards.
func (t *txn) mentionBoardOfPin() (exists bool, err error) {
	gone, err := t.isBoardEventVoid(t.ev.User, t.ev.Board)
	if err != nil || gone || t.outEndsOnly || !t.holdsHome(t.ev.User) {
		return !gone, err
	}
	return true, t.mentionBoard(t.ev.User, t.ev.Board)
}

// begin sets the creation time of a board, if the event begins its life: the first live mention, or an earlier backfilled one.
func (t *txn) setBoardCreated(owner, id string, b *board) error {
	before := *b
	switch {
	case !t.ev.Backfill && !b.exists():
		b.createdLive = t.order
	case t.ev.Backfill && (b.createdBackfill == 0 || t.order < b.createdBackfill):
		b.createdBackfill = t.order
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
			t.batch.Delete(t.key)
		}
		if is {
			t.key = listKey(t.key[:0], tagBoards, owner, after.created(), id)
			t.batch.Set(t.key, nil)
		}
		if err := t.updateUserCounts(owner, userDelta{4: lengthChange(was, is)}); err != nil {
			return err
		}
	}
	t.key = projections.AppendKey(t.key[:0], tagBoard, owner, id)
	if after == (board{}) {
		t.batch.Delete(t.key)
		return nil
	}
	t.value = after.appendRow(t.value[:0])
	t.batch.Set(t.key, t.value)
	return nil
}

// boardCreated creates a board, or creates it again after its deletion, and gives it a title if this is the latest creation.
func (t *txn) createBoard() error {
	owner, id := t.ev.User, t.ev.Board
	l, err := t.readBoardDeletion(owner, id)
	if err != nil || l != boardNeverDeleted && t.ev.Backfill {
		return err
	}
	if l == boardDeleted {
		t.writeBoardDeletion(owner, id, boardRecreated)
	}
	if t.outEndsOnly || !t.holdsHome(owner) {
		return nil
	}
	b, err := readBoard(t.batch, t.key[:0], owner, id)
	if err != nil {
		return err
	}
	if err := t.setBoardCreated(owner, id, &b); err != nil {
		return err
	}
	// Backfills may have equal times and arrive in any order. Their encodings decide then, so that every order ends with one title (I5).
	encoded := string(t.ev.Encoded)
	if t.order < b.titleOrder || (t.order == b.titleOrder && encoded <= b.titleEventBytes) {
		return nil
	}
	before := b
	b.titleOrder, b.title, b.titleEventBytes = t.order, t.ev.Title, ""
	if t.ev.Backfill {
		b.titleEventBytes = encoded
	}
	return t.writeBoard(owner, id, before, b)
}

// boardRelation folds a follow or unfollow of one board. An unfollow of a board whose owner the user follows is an exclusion.
func (t *txn) changeBoardFollow() error {
	gone, err := t.isBoardEventVoid(t.ev.Peer, t.ev.Board)
	if err != nil || gone {
		return err
	}
	return t.applyBothEnds(t.ev.User, t.ev.Peer, (*txn).changeBoardFollowAtEnd)
}

// boardEvent changes one board edge at one end.
func (t *txn) changeBoardFollowAtEnd(h *edgeEnd) error {
	id, follows := t.ev.Board, t.ev.Kind == events.BoardFollowed
	if follows && !t.ev.Backfill && h.before.isBlockedLive() {
		return nil
	}
	if h.end == inEnd {
		if err := t.mentionBoard(h.followee, id); err != nil {
			return err
		}
	}
	before, err := readBoardEdge(t.batch, t.key[:0], h.end, h.follower, h.followee, id)
	if err != nil {
		return err
	}
	e, owner := before, &h.before
	switch {
	case follows && t.ev.Backfill:
		e.followBackfill = max(e.followBackfill, t.order)
	case t.ev.Backfill:
		e.unfollowBackfill = max(e.unfollowBackfill, t.order)
	case follows && e.followLive <= max(e.unfollowLive, owner.latestPossibleLiveEnd()):
		e.followLive = t.order // else a repeat, which is not newer
	case !follows && e.unfollowLive <= max(e.followLive, owner.followLive, owner.latestPossibleLiveEnd()):
		e.unfollowLive = t.order
	}
	if e == before {
		return nil
	}
	h.after.hasBoards = true
	h.boardChanges = append(h.boardChanges, boardEdgeChange{id, before, e, before.relation(owner), e.relation(&h.after)})
	return t.writeEnd(h)
}

// boardDeleted ends a board and, in steps, all relations to it. The rows that say that the board is deleted are written last: a fold that
// was interrupted folds the event again, and finds the rest of its work in the rows that are left.
func (t *txn) deleteBoard() error {
	owner, id := t.ev.User, t.ev.Board
	end := func(e endKind, cut func([]byte) (string, error)) func([]byte) error {
		return func(rest []byte) error {
			follower, err := cut(rest)
			if err != nil {
				return err
			}
			return t.applyOneEnd(e, follower, owner, (*txn).deleteBoardEdge)
		}
	}
	held := !t.outEndsOnly && t.holdsHome(owner)
	if held {
		for _, tag := range []projections.Tag{tagBoardFollowers, tagBoardExcluders, tagBoardReverse} {
			if err := t.eraseRows(projections.AppendKey(nil, tag, owner, id), end(inEnd, userCutter(tag))); err != nil {
				return err
			}
		}
	}
	if err := t.eraseRows(projections.AppendKey(nil, tagBoardRegion, owner, id), end(outEnd, cutRegionUser)); err != nil {
		return err
	}
	if held {
		b, err := readBoard(t.batch, t.key[:0], owner, id)
		if err != nil {
			return err
		}
		if err := t.writeBoard(owner, id, b, board{}); err != nil {
			return err
		}
	}
	t.writeBoardDeletion(owner, id, boardDeleted)
	return nil
}

// endBoardEdge ends the relation of a follower to a board that is being deleted. It removes the facts too, because all of them are
// older than the deletion.
func (t *txn) deleteBoardEdge(h *edgeEnd) error {
	before, err := readBoardEdge(t.batch, t.key[:0], h.end, h.follower, h.followee, t.ev.Board)
	if err != nil {
		return err
	}
	h.boardChanges = append(h.boardChanges, boardEdgeChange{board: t.ev.Board, before: before, relationBefore: before.relation(&h.before)})
	return t.writeEnd(h)
}
