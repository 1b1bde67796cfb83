package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// A board that was ever deleted has a row in every store, because both ends of an edge must decide
// alike which events about the board are void.

// appendBoardDeletionKey appends the key of that row. It begins with the hash of the owner, so that
// the deletion of the owner finds the rows of all boards.
func (t *eventFold) appendBoardDeletionKey(dst []byte, owner, id string) []byte {
	dst = appendStoreWideKey(dst, tagBoardDeletion, t.batch.KeyedHash(owner))

	t.value = events.AppendID(events.AppendID(t.value[:0], owner), id)
	hash := t.batch.KeyedHash(string(t.value))
	return append(dst, hash[:]...)
}

// boardDeletion says whether a board was ever deleted. It is the value of the row, in one byte.
type boardDeletion byte

const (
	// boardNeverDeleted is the state of a board without a row.
	boardNeverDeleted boardDeletion = iota
	boardDeleted
	// boardRecreated is the state of a board that was created again after its deletion. The row
	// stays, because backfills are still void: all history comes before the deletion.
	boardRecreated
)

func (t *eventFold) readBoardDeletion(owner, id string) (boardDeletion, error) {
	t.key = t.appendBoardDeletionKey(t.key[:0], owner, id)
	row, ok, err := t.batch.Get(t.key)
	if err != nil || !ok {
		return boardNeverDeleted, err
	}
	return decodeBoardDeletion(row)
}

func decodeBoardDeletion(row []byte) (boardDeletion, error) {
	if len(row) != 1 {
		return 0, rowError("board life", row)
	}
	d := boardDeletion(row[0])
	if d != boardDeleted && d != boardRecreated {
		return 0, rowError("board life", row)
	}
	return d, nil
}

func (t *eventFold) writeBoardDeletion(owner, id string, d boardDeletion) {
	t.key = t.appendBoardDeletionKey(t.key[:0], owner, id)
	t.batch.Set(t.key, []byte{byte(d)})
}

// isBoardEventVoid reports whether the event is void because its board was deleted. A live event is
// void from the deletion until the next creation. A backfilled event is void if the board was ever
// deleted, because history comes before every deletion.
func (t *eventFold) isBoardEventVoid(owner, id string) (bool, error) {
	if id == "" {
		return false, nil // the default board cannot be deleted
	}
	d, err := t.readBoardDeletion(owner, id)
	return d == boardDeleted || d == boardRecreated && t.ev.Backfill, err
}

// deleteBoard folds a board_deleted: it ends the board and, in steps, all relations to it. The row
// that says that the board is deleted is written last. A fold that was interrupted folds the event
// again, and finds the rest of its work in the rows that are left.
func (t *eventFold) deleteBoard() error {
	owner, id := t.ev.User, t.ev.Board

	// deleteEdge returns a function that ends the board edge to which a row leads. cutFollower
	// reads the follower from the key of the row.
	deleteEdge := func(end endKind, cutFollower func([]byte) (string, error)) func([]byte) error {
		return func(rest []byte) error {
			follower, err := cutFollower(rest)
			if err != nil {
				return err
			}
			return t.applyOneEnd(end, follower, owner, (*eventFold).deleteBoardEdge)
		}
	}

	// In-ends and the board itself are at the home of the owner.
	holdsBoard := !t.outEndsOnly && t.holdsHome(owner)
	if holdsBoard {
		for _, tag := range []projections.Tag{tagBoardFollowers, tagBoardExcluders, tagUnlistedInBoardEdges} {
			prefix := projections.AppendKey(nil, tag, owner, id)
			if err := t.eraseRows(prefix, deleteEdge(inEnd, userCutter(tag))); err != nil {
				return err
			}
		}
	}

	// Out-ends are found by the region of the board, whichever partitions this store holds.
	prefix := projections.AppendKey(nil, tagBoardRegion, owner, id)
	if err := t.eraseRows(prefix, deleteEdge(outEnd, decodeRegionUser)); err != nil {
		return err
	}

	if holdsBoard {
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

// deleteBoardEdge ends the relation of a follower to a board that is being deleted. It removes the
// facts, too, because all of them are older than the deletion.
func (t *eventFold) deleteBoardEdge(e *edgeEnd) error {
	before, err := readBoardEdge(t.batch, t.key[:0], e.end, e.follower, e.followee, t.ev.Board)
	if err != nil {
		return err
	}
	e.boardChanges = append(e.boardChanges, boardEdgeChange{
		board:          t.ev.Board,
		before:         before,
		relationBefore: before.relation(&e.before),
	})
	return t.writeEnd(e)
}
