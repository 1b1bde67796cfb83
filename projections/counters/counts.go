package counters

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/heat"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// itemRow is what is known of an item. Tallies are integers of their own: nothing is taken back but likes, and they are kept
// whether or not a pin shows the item.
type itemRow struct {
	// plays and repins are those that ever counted, likes is how many users like it now.
	plays, likes, repins int64
	// lists is how many owners have it in their lists by its score.
	lists int64
	// scored: something gave it a score. It has the present one since the position from: so the version that ends next is known
	// without a look for it.
	scored bool
	from   int64
	score  int64
	// heat is exact, and may have grown by less than [moves] since the score was set.
	heat heat.Item
}

// moves is by how much the heat of an item must have grown for its score to be set anew: a quarter of a doubling.
const moves = heat.One / 4

// present returns the present version of a scored item, as far as lists have it.
func (it *itemRow) present() version {
	return version{from: uint64(it.from), to: math.MaxUint64, score: it.score}
}

// The row of an item: plays, likes, re-pins and lists as varints; then, if it is scored, the position and by how much the heat has grown
// since as varints, and the heat.

func (it *itemRow) append(dst []byte) []byte {
	if *it == (itemRow{}) {
		return dst
	}
	for _, n := range []int64{it.plays, it.likes, it.repins, it.lists} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	if it.scored {
		dst = binary.AppendUvarint(dst, uint64(it.from))
		dst = it.heat.Append(binary.AppendUvarint(dst, uint64(it.heat.Score()-it.score)))
	}
	return dst
}

func decodeItem(row []byte) (it itemRow, err error) {
	rest := row
	for _, n := range []*int64{&it.plays, &it.likes, &it.repins, &it.lists} {
		if *n, err = fields.CutCount(&rest); err != nil {
			return itemRow{}, projections.RowError("item", row)
		}
	}
	if it.scored = len(rest) > 0; it.scored {
		var grown int64
		if it.from, err = fields.CutCount(&rest); err == nil {
			grown, err = fields.CutCount(&rest)
		}
		if err == nil {
			it.heat, err = heat.DecodeItem(rest)
		}
		if grown >= moves || grown > 0 && it.heat.Scored {
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
	return readItem(c.b, c.key)
}

func (c *Counters) writeItem(id string, it *itemRow) {
	c.key = projections.AppendKey(c.key[:0], tagItem, id)
	c.value = it.append(c.value[:0])
	c.keep(c.key, c.value)
}

// doings is what is counted of a user beside relations.
type doings [2]int64

// The indexes of the numbers in doings and its row.
const (
	ownPins = iota
	ownPlays
)

func readDoings(r projections.Reader, key []byte) (d doings, err error) {
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
func (c *Counters) countDoings(user string, delta doings) error {
	c.key = projections.AppendKey(c.key[:0], tagDoings, user)
	d, err := readDoings(c.b, c.key)
	if err != nil {
		return err
	}
	if err := fields.AddCounts(d[:], delta[:], c.key); err != nil {
		return err
	}
	c.value = fields.AppendCounts(c.value[:0], d[:])
	c.keep(c.key, c.value)
	return nil
}

// addCount adds to the count in a row of its own.
func (c *Counters) addCount(key []byte, delta int64) error {
	n, err := readCount(c.b, key)
	if err != nil {
		return err
	}
	count := []int64{n}
	if err := fields.AddCounts(count, []int64{delta}, key); err != nil {
		return err
	}
	c.value = fields.AppendCounts(c.value[:0], count)
	c.keep(key, c.value)
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

// keep writes a row, or removes it if it says nothing.
func (c *Counters) keep(key, value []byte) {
	if len(value) == 0 {
		c.b.Delete(key)
		return
	}
	c.b.Set(key, value)
}
