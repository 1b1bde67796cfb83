package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// readBoard returns the row of a board, or the zero board if there is none. scratch is a buffer for
// the key.
func readBoard(r projections.Reader, scratch []byte, owner, id string) (b board, err error) {
	if id == "" {
		return b, nil
	}
	row, ok, err := r.Get(projections.AppendKey(scratch, tagBoard, owner, id))
	if err != nil || !ok {
		return b, err
	}
	err = b.decodeRow(row)
	return b, err
}

// mentionBoard creates a board if this event is its first mention. Events may mention a board
// before its creation arrives, or without one. The caller has checked that the event is not void.
func (t *eventFold) mentionBoard(owner, id string) error {
	if id == "" {
		return nil
	}
	b, err := readBoard(t.batch, t.key[:0], owner, id)
	if err != nil {
		return err
	}
	return t.setBoardCreated(owner, id, &b)
}

// mentionBoardOfPin counts an event that puts a pin on a board as a mention of the board. It
// reports whether the board exists afterwards; if not, the event is void.
func (t *eventFold) mentionBoardOfPin() (exists bool, err error) {
	void, err := t.isBoardEventVoid(t.ev.User, t.ev.Board)
	if err != nil || void {
		return !void, err
	}

	if t.outEndsOnly || !t.holdsHome(t.ev.User) {
		return true, nil // this store has no row of the board
	}
	return true, t.mentionBoard(t.ev.User, t.ev.Board)
}

// setBoardCreated sets the creation time of a board if the event begins the present life of the
// board: the first live mention does, and any earlier backfilled one.
func (t *eventFold) setBoardCreated(owner, id string, b *board) error {
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

// writeBoard writes the row of a board, its entry in the list of its owner, and the length of that
// list.
func (t *eventFold) writeBoard(owner, id string, before, after board) error {
	existedBefore := before.exists()
	existsAfter := after.exists()
	if existedBefore != existsAfter || (existsAfter && before.created() != after.created()) {
		if existedBefore {
			t.key = appendListKey(t.key[:0], tagBoardList, owner, before.created(), id)
			t.batch.Delete(t.key)
		}
		if existsAfter {
			t.key = appendListKey(t.key[:0], tagBoardList, owner, after.created(), id)
			t.batch.Set(t.key, nil)
		}
		d := userDelta{boardsIndex: lengthChange(existedBefore, existsAfter)}
		if err := t.updateUserCounts(owner, d); err != nil {
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

// createBoard folds a board_created: it creates a board, or creates it again after its deletion,
// and gives it a title if this is the latest creation.
func (t *eventFold) createBoard() error {
	owner, id := t.ev.User, t.ev.Board

	// Every store updates the row of a deleted board; the rest is for the store that holds the
	// owner.
	d, err := t.readBoardDeletion(owner, id)
	if err != nil {
		return err
	}
	if d != boardNeverDeleted && t.ev.Backfill {
		return nil // void: all history comes before the deletion
	}
	if d == boardDeleted {
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

	// Backfills may have equal times and arrive in any order. Their encodings decide then, so that
	// every order of arrival ends with the same title (I5).
	encoded := string(t.ev.Encoded)
	if t.order < b.titleOrder || (t.order == b.titleOrder && encoded <= b.titleEventBytes) {
		return nil
	}
	before := b
	b.titleOrder = t.order
	b.title = t.ev.Title
	b.titleEventBytes = ""
	if t.ev.Backfill {
		b.titleEventBytes = encoded
	}
	return t.writeBoard(owner, id, before, b)
}

// changeBoardFollow folds a follow or unfollow of one board. An unfollow of a board whose owner the
// user follows is an exclusion.
func (t *eventFold) changeBoardFollow() error {
	void, err := t.isBoardEventVoid(t.ev.Peer, t.ev.Board)
	if err != nil || void {
		return err
	}
	return t.applyBothEnds(t.ev.User, t.ev.Peer, (*eventFold).changeBoardFollowAtEnd)
}

// changeBoardFollowAtEnd changes one board edge at one end.
func (t *eventFold) changeBoardFollowAtEnd(e *edgeEnd) error {
	board := t.ev.Board
	isFollow := t.ev.Kind == events.BoardFollowed
	owner := &e.before
	if isFollow && !t.ev.Backfill && owner.isBlockedLive() {
		return nil // live follows are ignored while a live block stands, and do not even mention the board
	}

	// The row of the board is at the home of its owner, as the in-end is.
	if e.end == inEnd {
		if err := t.mentionBoard(e.followee, board); err != nil {
			return err
		}
	}

	before, err := readBoardEdge(t.batch, t.key[:0], e.end, e.follower, e.followee, board)
	if err != nil {
		return err
	}

	// A live fact counts only if it is no repeat: if a fact that ends what it began has come since
	// the last one.
	after := before
	switch {
	case isFollow && t.ev.Backfill:
		after.followBackfill = max(after.followBackfill, t.order)
	case t.ev.Backfill:
		after.unfollowBackfill = max(after.unfollowBackfill, t.order)
	case isFollow && after.followLive <= max(after.unfollowLive, owner.latestPossibleLiveEnd()):
		after.followLive = t.order
	case !isFollow && after.unfollowLive <=
		max(after.followLive, owner.followLive, owner.latestPossibleLiveEnd()):
		after.unfollowLive = t.order
	}
	if after == before {
		return nil
	}

	e.after.hasBoards = true
	e.boardChanges = append(e.boardChanges, boardEdgeChange{
		board:          board,
		before:         before,
		after:          after,
		relationBefore: before.relation(owner),
		relationAfter:  after.relation(&e.after),
	})
	return t.writeEnd(e)
}
