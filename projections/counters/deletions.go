package counters

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Every store has rows for the deleted users and for the boards that were ever deleted, whatever
// partitions it holds. These rows decide which events are void. The home of an item must decide
// that as the home of the owner does, without asking it (I13).

// tombstoneKey returns the key of the row of a deleted user. It has a keyed hash in place of the id,
// because no row may name a deleted user (I12).
func (c *Counters) tombstoneKey(user string) []byte {
	hash := c.batch.KeyedHash(user)
	c.key = append(storePrefix(c.key[:0], tagTombstone), hash[:]...)
	return c.key
}

// isErased reports whether a user was deleted. Backfills about such a user are void.
func (c *Counters) isErased(user string) (bool, error) {
	_, ok, err := c.batch.Get(c.tombstoneKey(user))
	return ok, err
}

// writeTombstone records that a user was deleted, so that later backfills about the user are void.
// Once all backfills are closed, no tombstone is needed.
func (c *Counters) writeTombstone(user string) {
	key := c.tombstoneKey(user)
	if c.batch.BackfillsClosed() {
		c.batch.Delete(key)
		return
	}
	c.batch.Set(key, nil)
}

// boardDeletion is the row of a board that was ever deleted.
type boardDeletion struct {
	// firstTime is the time of the first deletion. History comes before it.
	firstTime events.Micros
	// isDeleted is set until the board is created again.
	isDeleted bool
}

// The row is the time in 8 bytes, and one more byte while the board is deleted.

func (d boardDeletion) appendRow(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(d.firstTime))
	if d.isDeleted {
		dst = append(dst, 1)
	}
	return dst
}

func decodeBoardDeletion(row []byte) (d boardDeletion, err error) {
	d.isDeleted = len(row) == 9 && row[8] == 1
	if len(row) != 8 && !d.isDeleted {
		return boardDeletion{}, projections.RowError("deletion of a board", row)
	}
	if row[0] >= 0x80 { // a negative time
		return boardDeletion{}, projections.RowError("deletion of a board", row)
	}
	d.firstTime = events.Micros(binary.BigEndian.Uint64(row))
	return d, nil
}

// boardDeletionsPrefix appends the prefix of the rows about the deleted boards of an owner.
func (c *Counters) boardDeletionsPrefix(dst []byte, owner string) []byte {
	hash := c.batch.KeyedHash(owner)
	return append(storePrefix(dst, tagBoardDeletion), hash[:]...)
}

// readBoardDeletion returns the row of a board, or the zero value if the board was never deleted.
// It leaves the key of the row in c.key for the caller that writes it, except for a default board,
// which is never deleted.
func (c *Counters) readBoardDeletion(owner, board string) (d boardDeletion, err error) {
	if board == "" {
		return d, nil
	}

	// The hash of a board also depends on its owner. Otherwise equal hashes would show which owners
	// have deleted boards with the same id.
	c.key = c.boardDeletionsPrefix(c.key[:0], owner)
	ownerHash := string(c.key[len(c.key)-16:])
	hash := c.batch.KeyedHash(ownerHash + board)
	c.key = append(c.key, hash[:]...)

	row, ok, err := c.batch.Get(c.key)
	if err != nil || !ok {
		return d, err
	}
	return decodeBoardDeletion(row)
}

// recordBoardDeleted records that a board was deleted.
func (c *Counters) recordBoardDeleted(owner, board string) error {
	d, err := c.readBoardDeletion(owner, board)
	if err != nil {
		return err
	}
	d.isDeleted = true
	if d.firstTime == 0 {
		d.firstTime = c.ev.Time
	}
	c.batch.Set(c.key, d.appendRow(c.value[:0]))
	return nil
}

// recordBoardRecreated records that a board was created, if it was deleted before. The time of its
// first deletion stays, because history needs it, until all backfills are closed.
func (c *Counters) recordBoardRecreated(owner, board string) error {
	d, err := c.readBoardDeletion(owner, board)
	if err != nil || !d.isDeleted {
		return err
	}
	if c.batch.BackfillsClosed() {
		c.batch.Delete(c.key)
		return nil
	}
	d.isDeleted = false
	c.batch.Set(c.key, d.appendRow(c.value[:0]))
	return nil
}

// deleteBoardDeletions removes the rows about the deleted boards of a user who is deleted, in
// steps.
func (c *Counters) deleteBoardDeletions(owner string) error {
	return c.deleteRows(c.boardDeletionsPrefix(nil, owner))
}
