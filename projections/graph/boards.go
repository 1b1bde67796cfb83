package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// readBoard returns the row of a board, or the zero boardRow if there is none, as for the default
// board. scratch is a buffer for the key.
func readBoard(r projections.Reader, scratch []byte, owner, board string) (b boardRow, err error) {
	if board == "" {
		return b, nil
	}
	row, ok, err := r.Get(projections.AppendKey(scratch, tagBoard, owner, board))
	if err != nil || !ok {
		return b, err
	}
	err = b.decodeRow(row)
	return b, err
}

// createMentionedBoard creates a board if this event is its first mention. Events may mention a
// board before its board_created arrives, or without any. The caller must check first that the
// event is not void.
func (f *eventFold) createMentionedBoard(owner, board string) error {
	if board == "" {
		return nil // the default board has no row
	}
	row, err := readBoard(f.batch, f.key[:0], owner, board)
	if err != nil {
		return err
	}
	return f.recordMention(owner, board, &row)
}

// createBoardOfPin creates the board on which the event puts a pin, if this is the first mention of
// the board. exists is false if the event is void: the board is deleted, or was ever deleted and
// the event is a backfill.
func (f *eventFold) createBoardOfPin() (exists bool, err error) {
	void, err := f.isBoardEventVoid(f.ev.User, f.ev.Board)
	if err != nil || void {
		return !void, err
	}

	if f.outEndsOnly || !f.holdsHome(f.ev.User) {
		return true, nil // this store has no row of the board
	}
	return true, f.createMentionedBoard(f.ev.User, f.ev.Board)
}

// recordMention sets the creation time in the row of a board, if the board exists since this event,
// and writes the row. A live mention counts only if the board did not exist. A backfilled mention
// counts if it is the earliest backfilled one.
func (f *eventFold) recordMention(owner, board string, row *boardRow) error {
	before := *row
	switch {
	case !f.ev.Backfill && !row.exists():
		row.createdLive = f.order
	case f.ev.Backfill && (row.createdBackfill == 0 || f.order < row.createdBackfill):
		row.createdBackfill = f.order
	default:
		return nil
	}
	return f.writeBoard(owner, board, before, *row)
}

// writeBoard changes the row of a board from before to after, with the board's row in the list of
// the owner's boards and the length of that list. A zero after deletes the board.
func (f *eventFold) writeBoard(owner, board string, before, after boardRow) error {
	existedBefore := before.exists()
	existsAfter := after.exists()
	if existedBefore != existsAfter || (existsAfter && before.created() != after.created()) {
		if existedBefore {
			f.key = appendListKey(f.key[:0], tagBoards, owner, before.created(), board)
			f.batch.Delete(f.key)
		}
		if existsAfter {
			f.key = appendListKey(f.key[:0], tagBoards, owner, after.created(), board)
			f.batch.Set(f.key, nil)
		}
		delta := userDelta{boardsIndex: lengthChange(existedBefore, existsAfter)}
		if err := f.updateUserCounts(owner, delta); err != nil {
			return err
		}
	}

	f.key = projections.AppendKey(f.key[:0], tagBoard, owner, board)
	if after == (boardRow{}) {
		f.batch.Delete(f.key)
		return nil
	}
	f.value = after.appendRow(f.value[:0])
	f.batch.Set(f.key, f.value)
	return nil
}

// createBoard folds a board_created: it creates a board, or creates it again after its deletion,
// and gives it a title if this is the latest creation.
func (f *eventFold) createBoard() error {
	owner, board := f.ev.User, f.ev.Board

	// Every store has the row that says that a board was deleted, and updates it here.
	deletion, err := f.readBoardDeletion(owner, board)
	if err != nil {
		return err
	}
	if deletion != boardNeverDeleted && f.ev.Backfill {
		return nil // void: all history comes before the deletion
	}
	if deletion == boardDeleted {
		f.writeBoardDeletion(owner, board, boardRecreated)
	}

	// Only a store that holds the home of the owner has the board.
	if f.outEndsOnly || !f.holdsHome(owner) {
		return nil
	}

	row, err := readBoard(f.batch, f.key[:0], owner, board)
	if err != nil {
		return err
	}
	if err := f.recordMention(owner, board, &row); err != nil {
		return err
	}

	// Of two backfills of the same time, the one with the greater encoding gives the title, so that
	// the title does not depend on which of them arrives first (I5).
	encoded := string(f.ev.Encoded)
	if f.order < row.titleOrder || (f.order == row.titleOrder && encoded <= row.titleEventBytes) {
		return nil
	}
	before := row
	row.titleOrder = f.order
	row.title = f.ev.Title
	row.titleEventBytes = ""
	if f.ev.Backfill {
		row.titleEventBytes = encoded
	}
	return f.writeBoard(owner, board, before, row)
}

// followOrUnfollowBoard folds a follow or unfollow of one board. If the user follows the owner
// explicitly, the unfollow is an exclusion.
func (f *eventFold) followOrUnfollowBoard() error {
	void, err := f.isBoardEventVoid(f.ev.Peer, f.ev.Board)
	if err != nil || void {
		return err
	}
	return f.applyBothEnds(f.ev.User, f.ev.Peer, (*eventFold).followOrUnfollowBoardAtEnd)
}

// followOrUnfollowBoardAtEnd records the follow or unfollow of the board at one end.
func (f *eventFold) followOrUnfollowBoardAtEnd(change *edgeChange) error {
	board := f.ev.Board
	isFollow := f.ev.Kind == events.BoardFollowed
	ownerEdge := &change.before
	if isFollow && !f.ev.Backfill && ownerEdge.isBlockedLive() {
		return nil // live follows are void while a live block stands, and are no mentions of the board
	}

	// The row of the board is at the home of its owner, as the in-end is.
	if change.end == inEnd {
		if err := f.createMentionedBoard(change.followee, board); err != nil {
			return err
		}
	}

	before, err := readBoardEdge(f.batch, f.key[:0], change.end, change.follower, change.followee, board)
	if err != nil {
		return err
	}

	// A live follow or unfollow of the board is recorded only if it is not a repeat: something must
	// have ended the follow or unfollow that was recorded before. An unfollow of the board or of
	// its owner ends a follow of the board. A follow of either, or an unfollow of the owner, ends
	// an exclusion.
	after := before
	switch {
	case isFollow && f.ev.Backfill:
		after.followBackfill = max(after.followBackfill, f.order)
	case f.ev.Backfill:
		after.unfollowBackfill = max(after.unfollowBackfill, f.order)
	case isFollow &&
		after.followLive <= max(after.unfollowLive, ownerEdge.latestPossibleFollowEnd()):
		after.followLive = f.order
	case !isFollow && after.unfollowLive <=
		max(after.followLive, ownerEdge.followLive, ownerEdge.latestPossibleFollowEnd()):
		after.unfollowLive = f.order
	}
	if after == before {
		return nil
	}

	change.after.mayHaveBoardEdges = true
	change.boardChanges = append(change.boardChanges, boardEdgeChange{
		board:          board,
		before:         before,
		after:          after,
		relationBefore: before.relation(ownerEdge),
		relationAfter:  after.relation(&change.after),
	})
	return f.writeEnd(change)
}
