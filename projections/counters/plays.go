package counters

// applyPlay counts a play of an item and a play by a user, each at its home. Every play counts,
// also of the same user and item. (The reader of the log drops the repeated delivery of one event.)
func (c *Counters) applyPlay() error {
	if c.batch.Holds(c.ev.User) {
		if err := c.addUserTallies(c.ev.User, userTallies{tallyPlays: 1}); err != nil {
			return err
		}
	}

	if !c.batch.Holds(c.ev.Item) {
		return nil
	}
	item, err := c.readItem(c.ev.Item)
	if err != nil {
		return err
	}
	item.plays++
	if err := c.addHeat(c.ev.Item, &item, c.settings.PlayWeight); err != nil {
		return err
	}
	c.writeItem(c.ev.Item, &item)
	return nil
}
