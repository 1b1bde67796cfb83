package counters

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/heat"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// itemRow is the row of an item. Its tallies only grow, except for likes, and they stay when no pin shows the item any more.
type itemRow struct {
	// plays and repins are totals over all time. likes is the number of users who like the item now.
	plays, likes, repins int64
	// lists is the number of owners whose lists have rows of the item by its score.
	listsByScore int64
	// scored is set once the item has a score. from is the position since which it has the present one. It is kept here so that a
	// change of the score finds the version to end without a search.
	hasScore  bool
	scoreFrom int64
	score     int64
	// heat is exact. The score lags behind it by less than [moves].
	heat heat.Item
}

// moves is the growth of an item's heat at which its score is set anew: a quarter of a doubling. Without such a step every play would
// rewrite the rows of its item in all lists.
const minScoreGrowth = heat.One / 4

// present returns the present version of a scored item, as far as lists have it.
func (it *itemRow) currentVersion() version {
	return version{fromSeq: uint64(it.scoreFrom), toSeq: math.MaxUint64, score: it.score}
}

// The row of an item: plays, likes, re-pins and lists as varints; then, if it is scored, the position and by how much the heat has grown
// since as varints, and the heat.

func (it *itemRow) appendRow(dst []byte) []byte {
	if *it == (itemRow{}) {
		return dst
	}
	for _, n := range []int64{it.plays, it.likes, it.repins, it.listsByScore} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	if it.hasScore {
		dst = binary.AppendUvarint(dst, uint64(it.scoreFrom))
		dst = it.heat.Append(binary.AppendUvarint(dst, uint64(it.heat.Score()-it.score)))
	}
	return dst
}

func decodeItem(row []byte) (it itemRow, err error) {
	rest := row
	for _, n := range []*int64{&it.plays, &it.likes, &it.repins, &it.listsByScore} {
		if *n, err = fields.CutCount(&rest); err != nil {
			return itemRow{}, projections.RowError("item", row)
		}
	}
	if it.hasScore = len(rest) > 0; it.hasScore {
		var grown int64
		if it.scoreFrom, err = fields.CutCount(&rest); err == nil {
			grown, err = fields.CutCount(&rest)
		}
		if err == nil {
			it.heat, err = heat.DecodeItem(rest)
		}
		if grown >= minScoreGrowth || grown > 0 && it.heat.Scored {
			err = projections.RowError("score", row)
		}
		it.score = it.heat.Score() - grown
	}
	if err != nil || it == (itemRow{}) {
		return itemRow{}, projections.RowError("item", row)
	}
	return it, nil
}

func readItem(r projections.Reader, key []byte) (it itemRow, err error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return it, err
	}
	return decodeItem(row)
}

func (c *Counters) readItem(id string) (itemRow, error) {
	c.key = projections.AppendKey(c.key[:0], tagItem, id)
	return readItem(c.batch, c.key)
}

func (c *Counters) writeItem(id string, it *itemRow) {
	c.key = projections.AppendKey(c.key[:0], tagItem, id)
	c.value = it.appendRow(c.value[:0])
	c.setOrDelete(c.key, c.value)
}

// doings are the counts of what a user does: pins and plays.
type userTallies [2]int64

// The indexes of the numbers in doings and its row.
const (
	tallyPins = iota
	tallyPlays
)

func readUserTallies(r projections.Reader, key []byte) (d userTallies, err error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return d, err
	}
	if len(row) == 0 {
		return d, projections.RowError("counts of", key)
	}
	return d, fields.ReadCounts(row, d[:])
}

// countDoings adds to what is counted of a user.
func (c *Counters) addUserTallies(user string, delta userTallies) error {
	c.key = projections.AppendKey(c.key[:0], tagUserTallies, user)
	d, err := readUserTallies(c.batch, c.key)
	if err != nil {
		return err
	}
	if err := fields.AddCounts(d[:], delta[:], c.key); err != nil {
		return err
	}
	c.value = fields.AppendCounts(c.value[:0], d[:])
	c.setOrDelete(c.key, c.value)
	return nil
}

// addCount adds to the count in a row of its own.
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

// keep writes a row, or removes it if the value is empty, so that rows of equal meaning are equal bytes (I13).
func (c *Counters) setOrDelete(key, value []byte) {
	if len(value) == 0 {
		c.batch.Delete(key)
		return
	}
	c.batch.Set(key, value)
}
