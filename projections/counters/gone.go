package counters

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Every store has the deleted users and the boards that were ever deleted, whatever partitions it holds. They decide which events are
// void, and the home of an item must decide that like the home of the owner, without asking it (I13).

func (c *Counters) tombstoneKey(user string) []byte {
	hash := c.b.KeyedHash(user)
	c.key = append(storeKey(c.key[:0], tagTombstone), hash[:]...)
	return c.key
}

// erased reports whether a user was deleted: no history of theirs counts any more.
func (c *Counters) erased(user string) (bool, error) {
	_, ok, err := c.b.Get(c.tombstoneKey(user))
	return ok, err
}

// bury writes a tombstone, by which later backfills about the user are void. Once all backfills are closed none is needed.
func (c *Counters) bury(user string) {
	if key := c.tombstoneKey(user); c.b.BackfillsClosed() {
		c.b.Delete(key)
	} else {
		c.b.Set(key, nil)
	}
}

// boardLife is the row of a board that was ever deleted.
type boardLife struct {
	// first is the time of its first deletion.
	first events.Micros
	// deleted is set while the board does not exist: it was not created again.
	deleted bool
}

// The row is the time in 8 bytes, and one more where the board is deleted.

func (l boardLife) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.first))
	if l.deleted {
		dst = append(dst, 1)
	}
	return dst
}

func decodeBoardLife(row []byte) (l boardLife, err error) {
	l.deleted = len(row) == 9 && row[8] == 1
	if len(row) != 8 && !l.deleted || row[0] >= 0x80 {
		return boardLife{}, projections.RowError("life of a board", row)
	}
	l.first = events.Micros(binary.BigEndian.Uint64(row))
	return l, nil
}

// livesOf appends what the keys of the deleted boards of an owner begin with.
func (c *Counters) livesOf(dst []byte, owner string) []byte {
	hash := c.b.KeyedHash(owner)
	return append(storeKey(dst, tagBoardLife), hash[:]...)
}

// boardLife returns what became of a board. Its key is in c.key then, unless it is a default board, which is never deleted.
func (c *Counters) boardLife(owner, board string) (l boardLife, err error) {
	if board == "" {
		return l, nil
	}
	c.key = c.livesOf(c.key[:0], owner)
	hash := c.b.KeyedHash(string(c.key[len(c.key)-16:]) + board)
	c.key = append(c.key, hash[:]...)
	row, ok, err := c.b.Get(c.key)
	if err != nil || !ok {
		return l, err
	}
	return decodeBoardLife(row)
}

// boardDies notes that a board was deleted.
func (c *Counters) boardDies(owner, board string) error {
	l, err := c.boardLife(owner, board)
	if err != nil {
		return err
	}
	if l.deleted = true; l.first == 0 {
		l.first = c.ev.Time
	}
	c.b.Set(c.key, l.append(c.value[:0]))
	return nil
}

// boardRevives notes that a board was created again. The time of its first deletion stays, because history needs it.
func (c *Counters) boardRevives(owner, board string) error {
	l, err := c.boardLife(owner, board)
	if err != nil || !l.deleted {
		return err
	}
	if l.deleted = false; c.b.BackfillsClosed() {
		c.b.Delete(c.key)
		return nil
	}
	c.b.Set(c.key, l.append(c.value[:0]))
	return nil
}

// forgetBoards removes what became of the boards of a user who is deleted, in steps.
func (c *Counters) forgetBoards(owner string) error {
	return c.dropAll(c.livesOf(nil, owner))
}
