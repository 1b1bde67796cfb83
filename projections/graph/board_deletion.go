package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// appendBoardDeletionKey appends the key of the row in tagBoardDeletion. A board that was ever
// deleted has this row in every store, because both ends of an edge must decide alike which events
// about the board are void. The key begins with the hash of the owner, so that the deletion of the
// owner finds the rows of all of the owner's boards.
func (f *eventFold) appendBoardDeletionKey(dst []byte, owner, board string) []byte {
	dst = appendStoreWideKey(dst, tagBoardDeletion, f.batch.KeyedHash(owner))

	// The second hash is that of the owner and the board.
	f.value = events.AppendID(events.AppendID(f.value[:0], owner), board)
	hash := f.batch.KeyedHash(string(f.value))
	return append(dst, hash[:]...)
}

// boardDeletion says whether a board was ever deleted. It is the value of the row in
// tagBoardDeletion, in one byte.
type boardDeletion byte

const (
	// boardNeverDeleted is the state of a board without such a row. It is never stored.
	boardNeverDeleted boardDeletion = iota
	// boardDeleted is the state of a board that was deleted and not created again.
	boardDeleted
	// boardRecreated is the state of a board that was created again after its deletion. The row
	// stays, because backfills are still void: all history comes before the deletion.
	boardRecreated
)

// readBoardDeletion reads whether a board was ever deleted.
func (f *eventFold) readBoardDeletion(owner, board string) (boardDeletion, error) {
	f.key = f.appendBoardDeletionKey(f.key[:0], owner, board)
	row, ok, err := f.batch.Get(f.key)
	if err != nil || !ok {
		return boardNeverDeleted, err
	}
	return decodeBoardDeletion(row)
}

// decodeBoardDeletion decodes the value of a row in tagBoardDeletion.
func decodeBoardDeletion(row []byte) (boardDeletion, error) {
	if len(row) != 1 {
		return 0, projections.RowError("board deletion", row)
	}
	deletion := boardDeletion(row[0])
	if deletion != boardDeleted && deletion != boardRecreated {
		return 0, projections.RowError("board deletion", row)
	}
	return deletion, nil
}

// writeBoardDeletion writes the row that says that a board was deleted.
func (f *eventFold) writeBoardDeletion(owner, board string, deletion boardDeletion) {
	f.key = f.appendBoardDeletionKey(f.key[:0], owner, board)
	f.batch.Set(f.key, []byte{byte(deletion)})
}

// isBoardEventVoid reports whether the event is void because its board was deleted. A live event is
// void from the deletion until the next creation. A backfilled event is void if the board was ever
// deleted, because history comes before every deletion.
func (f *eventFold) isBoardEventVoid(owner, board string) (bool, error) {
	if board == "" {
		return false, nil // the default board cannot be deleted
	}
	deletion, err := f.readBoardDeletion(owner, board)
	return deletion == boardDeleted || deletion == boardRecreated && f.ev.Backfill, err
}

// deleteBoard folds a board_deleted: it deletes the board and, in steps, all board edges to it. If
// the fold is interrupted between steps, it folds the event again, and finds the rest of its work
// in the rows that are left.
func (f *eventFold) deleteBoard() error {
	owner, board := f.ev.User, f.ev.Board

	// The in-ends and the board itself are at the home of the owner.
	holdsBoard := !f.outEndsOnly && f.holdsHome(owner)
	if holdsBoard {
		for _, tag := range []projections.Tag{tagBoardFollowers, tagBoardExcluders, tagUnlistedInBoardEdges} {
			prefix := projections.AppendKey(nil, tag, owner, board)
			err := f.eraseEdgesByRows(prefix, followerDecoder(tag), func(follower string) error {
				return f.applyOneEnd(inEnd, follower, owner, (*eventFold).deleteBoardEdge)
			})
			if err != nil {
				return err
			}
		}
	}

	// The region of the board leads to the out-ends, whichever partitions this store holds.
	prefix := projections.AppendKey(nil, tagBoardRegion, owner, board)
	err := f.eraseEdgesByRows(prefix, decodeRegionUser, func(follower string) error {
		return f.applyOneEnd(outEnd, follower, owner, (*eventFold).deleteBoardEdge)
	})
	if err != nil {
		return err
	}

	if holdsBoard {
		row, err := readBoard(f.batch, f.key[:0], owner, board)
		if err != nil {
			return err
		}
		if err := f.writeBoard(owner, board, row, boardRow{}); err != nil {
			return err
		}
	}

	// This row comes last, so that it says what is true: no board edge is left.
	f.writeBoardDeletion(owner, board, boardDeleted)
	return nil
}

// deleteBoardEdge deletes the board edge of a follower to a board that is being deleted. No fact
// stays, because all of them are older than the deletion.
func (f *eventFold) deleteBoardEdge(change *edgeChange) error {
	before, err := readBoardEdge(f.batch, f.key[:0], change.end, change.follower, change.followee, f.ev.Board)
	if err != nil {
		return err
	}
	change.boardChanges = append(change.boardChanges, boardEdgeChange{
		board:          f.ev.Board,
		before:         before,
		relationBefore: before.relation(&change.before),
	})
	return f.writeEnd(change)
}
