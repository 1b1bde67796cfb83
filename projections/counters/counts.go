package counters

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/heat"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// itemRow is the row of an item. Plays and re-pins only grow, and stay when no pin shows the item
// any more.
type itemRow struct {
	// plays and repins are totals over all time. likes is the number of users who like the item
	// now, and otherKinds the number of other kinds with which users react to it
	// (tagReactionCount).
	plays, likes, repins, otherKinds int64
	// listsByScore is the number of owners whose lists have the item by score.
	listsByScore int64
	// hasScore is set once the item has a score. scoreFrom is the position since which it has the
	// current one. The position is kept here so that a change of the score finds the version that
	// it ends without a search. lastEnded is the number of the ended version before the current
	// one, or 0 if there was none. It may have been dropped.
	hasScore  bool
	scoreFrom int64
	score     int64
	lastEnded uint64
	// heat is exact. The score lags behind it by less than [minScoreGrowth].
	heat heat.Item
}

// minScoreGrowth is how much the heat of an item must grow before its score is set again: a quarter
// of a doubling. Otherwise every play would rewrite the rows of the item in all lists.
const minScoreGrowth = heat.One / 4

// currentVersion returns the version of the score that holds now.
func (item *itemRow) currentVersion() version {
	return version{fromSeq: uint64(item.scoreFrom), toSeq: math.MaxUint64, score: item.score}
}

// appendRow appends plays, likes, re-pins, other kinds and listsByScore as varints. If the item has
// a score, scoreFrom, lastEnded and the growth of the heat since scoreFrom follow as varints, and
// then the heat. It appends nothing for the zero row.
func (item *itemRow) appendRow(dst []byte) []byte {
	if *item == (itemRow{}) {
		return dst
	}
	for _, n := range []int64{item.plays, item.likes, item.repins, item.otherKinds, item.listsByScore} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	if item.hasScore {
		growth := item.heat.Score() - item.score
		dst = binary.AppendUvarint(dst, uint64(item.scoreFrom))
		dst = binary.AppendUvarint(dst, item.lastEnded)
		dst = binary.AppendUvarint(dst, uint64(growth))
		dst = item.heat.Append(dst)
	}
	return dst
}

func decodeItem(row []byte) (item itemRow, err error) {
	rest := row
	for _, n := range []*int64{&item.plays, &item.likes, &item.repins, &item.otherKinds, &item.listsByScore} {
		if *n, err = fields.CutCount(&rest); err != nil {
			return itemRow{}, projections.RowError("item", row)
		}
	}

	// Only the row of an item with a score goes on. It has the heat, which is exact, and how much
	// the heat has grown since the score was set. The score is the difference.
	if len(rest) > 0 {
		item.hasScore = true
		var lastEnded, growth int64
		for _, n := range []*int64{&item.scoreFrom, &lastEnded, &growth} {
			if *n, err = fields.CutCount(&rest); err != nil {
				return itemRow{}, projections.RowError("item", row)
			}
		}
		item.lastEnded = uint64(lastEnded)
		item.heat, err = heat.DecodeItem(rest)
		if growth >= minScoreGrowth || growth > 0 && item.heat.HasGivenScore {
			err = projections.RowError("score", row)
		}
		item.score = item.heat.Score() - growth
	}

	if err != nil || item == (itemRow{}) {
		return itemRow{}, projections.RowError("item", row)
	}
	return item, nil
}

// readItem returns the row of an item, or the zero row if there is none.
func readItem(r projections.Reader, key []byte) (item itemRow, err error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return item, err
	}
	return decodeItem(row)
}

func (c *Counters) readItem(id string) (itemRow, error) {
	c.key = projections.AppendKey(c.key[:0], tagItem, id)
	return readItem(c.batch, c.key)
}

func (c *Counters) writeItem(id string, item *itemRow) {
	c.key = projections.AppendKey(c.key[:0], tagItem, id)
	c.value = item.appendRow(c.value[:0])
	c.setOrDelete(c.key, c.value)
}

// userTallies are the counts of a user: living pins and plays.
type userTallies [2]int64

// The indexes of the counts in userTallies and its row.
const (
	tallyPins = iota
	tallyPlays
)

func readUserTallies(r projections.Reader, key []byte) (tallies userTallies, err error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return tallies, err
	}
	if len(row) == 0 { // a user without counts has no row
		return tallies, projections.RowError("counts of", key)
	}
	return tallies, fields.ReadCounts(row, tallies[:])
}

// addUserTallies adds delta to the counts of a user.
func (c *Counters) addUserTallies(user string, delta userTallies) error {
	c.key = projections.AppendKey(c.key[:0], tagUserTallies, user)
	tallies, err := readUserTallies(c.batch, c.key)
	if err != nil {
		return err
	}
	if err := fields.AddCounts(tallies[:], delta[:], c.key); err != nil {
		return err
	}
	c.value = fields.AppendCounts(c.value[:0], tallies[:])
	c.setOrDelete(c.key, c.value)
	return nil
}

// addToCount adds delta to the count in a row that has nothing else.
func (c *Counters) addToCount(key []byte, delta int64) error {
	n, err := readCount(c.batch, key)
	if err != nil {
		return err
	}
	count := []int64{n}
	if err := fields.AddCounts(count, []int64{delta}, key); err != nil {
		return err
	}
	c.value = fields.AppendCounts(c.value[:0], count)
	c.setOrDelete(key, c.value)
	return nil
}

func readCount(r projections.Reader, key []byte) (int64, error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return 0, err
	}
	return decodeCount(row)
}

func decodeCount(row []byte) (int64, error) {
	rest := row
	n, err := fields.CutCount(&rest)
	if err != nil || n == 0 || len(rest) != 0 {
		return 0, projections.RowError("count", row)
	}
	return n, nil
}

// setOrDelete writes a row, or deletes the row if the value is empty, so that rows of equal meaning
// are equal bytes (I13).
func (c *Counters) setOrDelete(key, value []byte) {
	if len(value) == 0 {
		c.batch.Delete(key)
		return
	}
	c.batch.Set(key, value)
}
