package counters

import "github.com/skein-feed/skein/projections/heat"

// addHeat adds to the heat of an item, at the time of the event. The caller writes the item. A
// score that was given by an item_scored stays.
func (c *Counters) addHeat(id string, item *itemRow, weight uint32) error {
	if item.heat.HasGivenScore || weight == 0 {
		return nil
	}
	halfLife := c.settings.HalfLife.Microseconds()
	sum := item.heat.Sum.Add(weight, int64(c.ev.Time), halfLife)
	return c.setHeat(id, item, heat.Item{Sum: sum})
}

// overrideScore folds an item_scored: the given score replaces the heat of an item.
func (c *Counters) overrideScore() error {
	if !c.batch.Holds(c.ev.Item) {
		return nil
	}
	item, err := c.readItem(c.ev.Item)
	if err != nil {
		return err
	}
	if err := c.setHeat(c.ev.Item, &item, heat.Item{HasGivenScore: true, GivenScore: c.ev.Score}); err != nil {
		return err
	}
	c.writeItem(c.ev.Item, &item)
	return nil
}

// setHeat sets the heat of an item. It also sets the score, and begins a version of it, if the heat
// has grown by at least [minScoreGrowth] since the last version, or if the event gives another
// score. The caller writes the item.
func (c *Counters) setHeat(id string, item *itemRow, after heat.Item) error {
	before := *item
	score := after.Score()
	item.hasScore = true
	item.heat = after

	// A new version rewrites the rows of the item in all lists, so there is none for a score that
	// has hardly changed.
	if before.hasScore {
		if after.HasGivenScore && score == before.score {
			return nil
		}
		if !after.HasGivenScore && score-before.score < minScoreGrowth {
			return nil
		}
	}

	item.score = score
	item.scoreFrom = int64(c.ev.Seq)
	return c.beginVersion(id, &before, item)
}

// version is one version of the score of an item. It holds at the positions S of the log with
// fromSeq <= S < toSeq.
type version struct {
	fromSeq, toSeq uint64
	score          int64
}
