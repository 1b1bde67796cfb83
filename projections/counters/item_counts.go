package counters

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/heat"
)

// itemRow is what is known of an item. Tallies are integers of their own: nothing is taken back but likes, and they are kept
// whether or not a pin shows the item.
type itemRow struct {
	// plays and repins are those that ever counted, likes is how many users like it now.
	plays, likes, repins int64
	// boards is on how many boards at least one living pin shows it, names which these are if they are at most [named].
	boards int64
	names  boardNames
	// widespread: the lists of owners and boards do not have its score. See [Counters.spread].
	widespread bool
	// hot: something gave it a score. It has the present one since the position from: so the version that ends next is known
	// without a look for it.
	hot  bool
	from int64
	heat heat.Item
}

// present returns the present version of a hot item, as far as lists have it.
func (it *itemRow) present() version {
	return version{from: uint64(it.from), to: math.MaxUint64, score: it.heat.Score()}
}

// The row of an item: plays, likes, re-pins and twice the boards, one more if it is widespread, as varints; then, if it is on up
// to three boards, how many bytes their names take, as a varint, and the names; then, if it is hot, the position as a varint and
// the heat.

func (it *itemRow) append(dst []byte) []byte {
	boards := uint64(it.boards) << 1
	if it.widespread {
		boards |= 1
	}
	if *it == (itemRow{}) {
		return dst
	}
	for _, n := range []uint64{uint64(it.plays), uint64(it.likes), uint64(it.repins), boards} {
		dst = binary.AppendUvarint(dst, n)
	}
	if it.boards > 0 && it.boards <= named {
		dst = append(binary.AppendUvarint(dst, uint64(len(it.names))), it.names...)
	}
	if it.hot {
		dst = it.heat.Append(binary.AppendUvarint(dst, uint64(it.from)))
	}
	return dst
}

func decodeItem(row []byte) (it itemRow, err error) {
	rest := row
	for _, n := range []*int64{&it.plays, &it.likes, &it.repins, &it.boards} {
		if *n, err = cutCount(&rest); err != nil {
			return itemRow{}, errRow("item", row)
		}
	}
	it.widespread = it.boards&1 != 0
	it.boards >>= 1
	if it.boards > 0 && it.boards <= named {
		n, err := cutCount(&rest)
		if err != nil || n == 0 || n > int64(len(rest)) {
			return itemRow{}, errRow("item", row)
		}
		it.names, rest = boardNames(rest[:n]), rest[n:]
	}
	if it.hot = len(rest) > 0; it.hot {
		if it.from, err = cutCount(&rest); err == nil {
			it.heat, err = heat.DecodeItem(rest)
		}
	}
	if err != nil || it == (itemRow{}) || it.widespread && it.boards == 0 {
		return itemRow{}, errRow("item", row)
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

// The places in doings and its row.
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
		return d, errRow("counts of", key)
	}
	return d, readCounts(row, d[:])
}

// countDoings adds to what is counted of a user.
func (c *Counters) countDoings(user string, delta doings) error {
	c.key = projections.AppendKey(c.key[:0], tagDoings, user)
	d, err := readDoings(c.b, c.key)
	if err != nil {
		return err
	}
	if err := add(d[:], delta[:], c.key); err != nil {
		return err
	}
	c.value = appendCounts(c.value[:0], d[:])
	c.keep(c.key, c.value)
	return nil
}

// addCount adds to the count in a row of its own, and returns what it is now.
func (c *Counters) addCount(key []byte, delta int64) (int64, error) {
	n, err := readCount(c.b, key)
	if err != nil {
		return 0, err
	}
	count := []int64{n}
	if err := add(count, []int64{delta}, key); err != nil {
		return 0, err
	}
	c.value = appendCounts(c.value[:0], count)
	c.keep(key, c.value)
	return count[0], nil
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
	n, err := cutCount(&rest)
	if err != nil || n == 0 || len(rest) != 0 {
		return 0, errRow("count", row)
	}
	return n, nil
}
