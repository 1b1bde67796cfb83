package counters

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/heat"
)

// addHeat adds to the heat of an item at the time of the event. The caller writes the item.
func (c *Counters) addHeat(id string, it *itemRow, weight uint32) error {
	if it.heat.Scored || weight == 0 {
		return nil
	}
	after := heat.Item{Sum: it.heat.Sum.Add(weight, int64(c.ev.Time), c.settings.HalfLife.Microseconds())}
	return c.setHeat(id, it, after)
}

// itemScored overrides the heat of an item.
func (c *Counters) overrideScore() error {
	if !c.batch.Holds(c.ev.Item) {
		return nil
	}
	it, err := c.readItem(c.ev.Item)
	if err != nil {
		return err
	}
	if err := c.setHeat(c.ev.Item, &it, heat.Item{Scored: true, Given: c.ev.Score}); err != nil {
		return err
	}
	c.writeItem(c.ev.Item, &it)
	return nil
}

// setHeat sets the heat of an item. It sets the score too if the heat has grown by [moves], or if the event gives the score.
func (c *Counters) setHeat(id string, it *itemRow, after heat.Item) error {
	before, score := *it, after.Score()
	it.hasScore, it.heat = true, after
	if before.hasScore && (after.Scored && score == before.score || !after.Scored && score-before.score < minScoreGrowth) {
		return nil
	}
	it.score, it.scoreFrom = score, int64(c.ev.Seq)
	return c.beginVersion(id, &before, it)
}

// version is one version of the score of an item: the score at the positions from <= S < to.
type version struct {
	fromSeq, toSeq uint64
	// began is the log time of the position from.
	beganAt events.Micros
	score   int64
}

// The row of a version is the log time as a varint and the score in 8 bytes. It ends where the next one begins.

func (v *version) appendRow(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.AppendUvarint(dst, uint64(v.beganAt)), uint64(v.score))
}

func decodeVersion(row []byte) (began events.Micros, score int64, err error) {
	t, n := binary.Uvarint(row)
	if n <= 0 || len(row) != n+8 || t > 1<<62 || n > 1 && row[n-1] == 0 {
		return 0, 0, projections.RowError("version", row)
	}
	return events.Micros(t), int64(binary.BigEndian.Uint64(row[n:])), nil
}
