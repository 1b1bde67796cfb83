package counters

import (
	"fmt"
	"time" //nolint:depguard // for the durations of settings: no clock is read

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Settings are what the fold reads. They are part of the fingerprint (I4). Feeds are ranked by the same: give inbox equal
// values.
type Settings struct {
	// HalfLife is the time in which heat halves. Default 24 hours.
	HalfLife time.Duration
	// PlayWeight, LikeWeight and RepinWeight are what one of each adds to the heat of an item. Defaults 1, 4, 8.
	PlayWeight, LikeWeight, RepinWeight uint32
	// Widespread: an item that living pins show on more boards is not kept in the lists by heat of each of them, but is
	// looked up when one is read. Default 64.
	Widespread int
}

// DefaultSettings returns the defaults.
func DefaultSettings() Settings {
	return Settings{HalfLife: 24 * time.Hour, PlayWeight: 1, LikeWeight: 4, RepinWeight: 8, Widespread: 64}
}

// Check tells which setting is out of its bounds.
func (s Settings) Check() error {
	switch {
	case s.HalfLife < time.Second || s.HalfLife > 10*365*24*time.Hour:
		return fmt.Errorf("counters: the half-life is %v, not 1 s to 10 years", s.HalfLife)
	case s.Widespread < 1 || s.Widespread > 10_000:
		return fmt.Errorf("counters: widespread is %d, not 1 to 10000 boards", s.Widespread)
	}
	return nil
}

// Counters is the projection. It holds scratch space: one Counters folds into one store, from one goroutine.
type Counters struct {
	settings Settings

	b  *projections.Batch
	ev *events.Event
	// queue is what was read ahead of the versions that ended.
	queue queue
	// key and value are scratch: the batch copies what it is given.
	key, value []byte
}

var (
	_ projections.Projection = (*Counters)(nil)
	_ projections.Configured = (*Counters)(nil)
	_ projections.Forgetful  = (*Counters)(nil)
	_ projections.Prefetcher = (*Counters)(nil)
	_ projections.Walked     = (*Counters)(nil)
)

// New returns the projection.
func New(s Settings) *Counters { return &Counters{settings: s} }

// Name returns "counters".
func (*Counters) Name() string { return "counters" }

// Version is the version of the fold and its rows. Since 2 an item names the boards that it is on, if they are few; since 3 a pin
// keeps what tells when it left the board of its history.
func (*Counters) Version() uint32 { return 3 }

// Settings is part of the fingerprint.
func (c *Counters) Settings() map[string]string {
	s := c.settings
	return map[string]string{
		"half-life":    s.HalfLife.String(),
		"play-weight":  fmt.Sprint(s.PlayWeight),
		"like-weight":  fmt.Sprint(s.LikeWeight),
		"repin-weight": fmt.Sprint(s.RepinWeight),
		"widespread":   fmt.Sprint(s.Widespread),
	}
}

// Kinds are all that make or end what is counted.
func (*Counters) Kinds() []events.Kind {
	return []events.Kind{
		events.UserFollowed, events.UserUnfollowed, events.BoardFollowed, events.BoardUnfollowed,
		events.BoardCreated, events.BoardDeleted, events.PinCreated, events.PinMoved, events.PinDeleted,
		events.UserBlocked, events.UserUnblocked, events.UserDeleted,
		events.Liked, events.Unliked, events.Played, events.ItemScored,
	}
}

// Forget drops what was read ahead.
func (c *Counters) Forget() { c.queue = queue{} }

// Apply folds one event.
func (c *Counters) Apply(ev events.Event, b *projections.Batch) error {
	c.b, c.ev = b, &ev
	if err := c.apply(&ev); err != nil {
		return err
	}
	return c.prune() // after the last step
}

func (c *Counters) apply(ev *events.Event) error {
	if ev.Backfill {
		if closed, err := c.erased(ev.User, ev.Peer); err != nil || closed {
			return err
		}
	}
	switch ev.Kind {
	case events.UserFollowed, events.UserUnfollowed, events.UserBlocked, events.UserUnblocked:
		return c.between()
	case events.BoardFollowed, events.BoardUnfollowed:
		return c.ofBoard()
	case events.BoardCreated:
		_, err := c.mention(ev.User, ev.Board)
		return err
	case events.BoardDeleted:
		if err := c.pinsOfBoardEnd(); err != nil {
			return err
		}
		return c.boardDeleted()
	case events.PinCreated, events.PinMoved:
		exists, err := c.mention(ev.User, ev.Board)
		if err != nil {
			return err
		}
		return c.pinned(exists)
	case events.PinDeleted:
		return c.pinDeleted()
	case events.Liked, events.Unliked:
		return c.liked()
	case events.Played:
		return c.played()
	case events.ItemScored:
		return c.itemScored()
	case events.UserDeleted:
		if err := c.eraseItems(); err != nil {
			return err
		}
		return c.eraseRelations() // with the tombstone, last
	}
	return fmt.Errorf("counters: event of kind %s, which it does not read", ev.Kind)
}
