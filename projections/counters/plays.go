package counters

// played counts a play of an item and by a user. Repeats count: what is a repeated delivery, the reader has dropped.
func (c *Counters) played() error {
	it, err := c.readItem(c.ev.Item)
	if err != nil {
		return err
	}
	it.plays++
	if err := c.addHeat(c.ev.Item, &it, c.settings.PlayWeight); err != nil {
		return err
	}
	c.writeItem(c.ev.Item, &it)
	return c.countDoings(c.ev.User, doings{ownPlays: 1})
}
