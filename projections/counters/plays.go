package counters

// played counts a play of an item and a play by a user, each at its home. A user who plays an item twice is counted twice. The
// repeated delivery of one event is dropped by the reader of the log.
func (c *Counters) applyPlay() error {
	if c.batch.Holds(c.ev.User) {
		if err := c.addUserTallies(c.ev.User, userTallies{tallyPlays: 1}); err != nil {
			return err
		}
	}
	if !c.batch.Holds(c.ev.Item) {
		return nil
	}
	it, err := c.readItem(c.ev.Item)
	if err != nil {
		return err
	}
	it.plays++
	if err := c.addHeat(c.ev.Item, &it, c.settings.PlayWeight); err != nil {
		return err
	}
	c.writeItem(c.ev.Item, &it)
	return nil
}
