package counters

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Every store has the deleted users and the boards that were ever deleted, whatever partitions it holds. They decide which events are
// void, and the home of an item must decide that like the home of the owner, without asking it (I13).

func (c *Counters) tombstoneKey(user string) []byte {
	hash := c.batch.KeyedHash(user)
	c.key = append(storePrefix(c.key[:0], tagTombstone), hash[:]...)
	return c.key
}

// erased reports whether a user was deleted: no history of theirs counts any more.
func (c *Counters) isErased(user string) (bool, error) {
	_, ok, err := c.batch.Get(c.tombstoneKey(user))
	return ok, err
}

// bury writes a tombstone, by which later backfills about the user are void. Once all backfills are closed none is needed.
func (c *Counters) writeTombstone(user string) {
	if key := c.tombstoneKey(user); c.batch.BackfillsClosed() {
		c.batch.Delete(key)
	} else {
		c.batch.Set(key, nil)
	}
}

// boardLife is the row of a board that was ever deleted.
type boardDeletion struct {
	// first is the time of its first deletion.
	firstTime events.Micros
	// deleted is set while the board does not exist: it was not created again.
	isDeleted bool
}

// The row is the time in 8 bytes, and one more where the board is deleted.

func (l boardDeletion) appendRow(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.firstTime))
	if l.isDeleted {
		dst = append(dst, 1)
	}
	return dst
}

func decodeBoardDeletion(row []byte) (l boardDeletion, err error) {
	l.isDeleted = len(row) == 9 && row[8] == 1
	if len(row) != 8 && !l.isDeleted || row[0] >= 0x80 {
		return boardDeletion{}, projections.RowError("life of a board", row)
	}
	l.firstTime = events.Micros(binary.BigEndian.Uint64(row))
	return l, nil
}

// livesOf appends what the keys of the deleted boards of an owner begin with.
func (c *Counters) boardDeletionsPrefix(dst []byte, owner string) []byte {
	hash := c.batch.KeyedHash(owner)
	return append(storePrefix(dst, tagBoardDeletion), hash[:]...)
}

// boardLife returns what became of a board. Its key is in c.key then, unless it is a default board, which is never deleted.
func (c *Counters) readBoardDeletion(owner, board string) (l boardDeletion, err error) {
	if board == "" {
		return l, nil
	}
	c.key = c.boardDeletionsPrefix(c.key[:0], owner)
	hash := c.batch.KeyedHash(string(c.key[len(c.key)-16:]) + board)
	c.key = append(c.key, hash[:]...)
	row, ok, err := c.batch.Get(c.key)
	if err != nil || !ok {
		return l, err
	}
	return decodeBoardDeletion(row)
}

// boardDies notes that a board was deleted.
func (c *Counters) recordBoardDeleted(owner, board string) error {
	l, err := c.readBoardDeletion(owner, board)
	if err != nil {
		return err
	}
	if l.isDeleted = true; l.firstTime == 0 {
		l.firstTime = c.ev.Time
	}
	c.batch.Set(c.key, l.appendRow(c.value[:0]))
	return nil
}

// boardRevives notes that a board was created again. The time of its first deletion stays, because history needs it.
func (c *Counters) recordBoardRecreated(owner, board string) error {
	l, err := c.readBoardDeletion(owner, board)
	if err != nil || !l.isDeleted {
		return err
	}
	if l.isDeleted = false; c.batch.BackfillsClosed() {
		c.batch.Delete(c.key)
		return nil
	}
	c.batch.Set(c.key, l.appendRow(c.value[:0]))
	return nil
}

// forgetBoards removes what became of the boards of a user who is deleted, in steps.
func (c *Counters) deleteBoardDeletions(owner string) error {
	return c.deleteRows(c.boardDeletionsPrefix(nil, owner))
}
