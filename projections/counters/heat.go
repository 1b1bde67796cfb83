package counters

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/heat"
)

// itemHeat is the heat of an item: the sum, until a score overrides it for good.
type itemHeat struct {
	sum    heat.Sum
	scored bool
	score  int64
}

func (h itemHeat) value() int64 {
	if h.scored {
		return h.score
	}
	return h.sum.Score()
}

// In a row heat is 1 and the score in 8 bytes, or 0 and the sum.

func (h itemHeat) append(dst []byte) []byte {
	if h.scored {
		return binary.BigEndian.AppendUint64(append(dst, 1), uint64(h.score))
	}
	return h.sum.Append(append(dst, 0))
}

func decodeHeat(row []byte) (h itemHeat, err error) {
	switch {
	case len(row) == 9 && row[0] == 1:
		return itemHeat{scored: true, score: int64(binary.BigEndian.Uint64(row[1:]))}, nil
	case len(row) > 1 && row[0] == 0:
		if h.sum, err = heat.Decode(row[1:]); err == nil && h.sum != (heat.Sum{}) {
			return h, nil
		}
	}
	return itemHeat{}, errRow("heat", row)
}

// addHeat adds to the heat of an item at the time of the event. The caller writes the item.
func (c *Counters) addHeat(id string, it *itemRow, weight uint32) error {
	if it.heat.scored || weight == 0 {
		return nil
	}
	after := itemHeat{sum: it.heat.sum.Add(weight, int64(c.ev.Time), c.settings.HalfLife.Microseconds())}
	return c.setHeat(id, it, after)
}

// itemScored overrides the heat of an item.
func (c *Counters) itemScored() error {
	it, err := c.readItem(c.ev.Item)
	if err != nil {
		return err
	}
	if err := c.setHeat(c.ev.Item, &it, itemHeat{scored: true, score: c.ev.Score}); err != nil {
		return err
	}
	c.writeItem(c.ev.Item, &it)
	return nil
}

func (c *Counters) setHeat(id string, it *itemRow, after itemHeat) error {
	before := *it
	it.hot, it.heat = true, after
	if before.hot && before.heat.value() == after.value() {
		return nil
	}
	it.from = int64(c.ev.Seq)
	return c.beginVersion(id, &before, it)
}

// version is one version of the score of an item: the score at the positions from <= S < to.
type version struct {
	from, to uint64
	// began is the log time of the position from.
	began events.Micros
	score int64
}

// The row of a version is the log time as a varint and the score in 8 bytes. It ends where the next one begins.

func (v *version) append(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.AppendUvarint(dst, uint64(v.began)), uint64(v.score))
}

func decodeVersion(row []byte) (began events.Micros, score int64, err error) {
	t, n := binary.Uvarint(row)
	if n <= 0 || len(row) != n+8 || t > 1<<62 || n > 1 && row[n-1] == 0 {
		return 0, 0, errRow("version", row)
	}
	return events.Micros(t), int64(binary.BigEndian.Uint64(row[n:])), nil
}
