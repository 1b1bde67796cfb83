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
}

// DefaultSettings returns the defaults.
func DefaultSettings() Settings {
	return Settings{HalfLife: 24 * time.Hour, PlayWeight: 1, LikeWeight: 4, RepinWeight: 8}
}

// Check reports which setting is out of its bounds.
func (s Settings) Check() error {
	if s.HalfLife < time.Second || s.HalfLife > 10*365*24*time.Hour {
		return fmt.Errorf("counters: the half-life is %v, not 1 s to 10 years", s.HalfLife)
	}
	return nil
}

// Counters is the projection. It holds scratch space: one Counters folds into one store, from one goroutine.
type Counters struct {
	settings Settings

	batch *projections.Batch
	ev    *events.Event
	// event is that of ev: an allocation for each would cost more than the copy.
	eventCopy events.Event
	// named and listed are the constants of the same names. Tests make them smaller, to get past them with few pins.
	maxPinsByName, maxListsByScore int
	// key and value are scratch: the batch copies what it is given.
	key, value []byte
}

var (
	_ projections.Projection = (*Counters)(nil)
	_ projections.Configured = (*Counters)(nil)
	_ projections.Regional   = (*Counters)(nil)
	_ projections.Walked     = (*Counters)(nil)
)

// New returns the projection.
func New(s Settings) *Counters {
	return &Counters{settings: s, maxPinsByName: maxPinsByName, maxListsByScore: maxListsByScore}
}

// Name returns "counters".
func (*Counters) Name() string { return "counters" }

// Version is the version of the fold and its rows. Since 2 an item names the boards that it is on, if they are few; since 3 a pin
// keeps when it left the board of its history; since 4 rows stand with one home each, and a re-pin counts once; since 5 a
// like has its time, and users have lists of what they like; since 6 a pin keeps whether it is a re-pin; since 7 a
// live re-pin on a deleted board counts.
func (*Counters) Version() uint32 { return 7 }

// Settings is part of the fingerprint.
func (c *Counters) Settings() map[string]string {
	s := c.settings
	return map[string]string{
		"half-life":    s.HalfLife.String(),
		"play-weight":  fmt.Sprint(s.PlayWeight),
		"like-weight":  fmt.Sprint(s.LikeWeight),
		"repin-weight": fmt.Sprint(s.RepinWeight),
	}
}

// Kinds are all that make or end what is counted.
func (*Counters) Kinds() []events.Kind {
	return []events.Kind{
		events.BoardCreated, events.BoardDeleted, events.PinCreated, events.PinMoved, events.PinDeleted, events.UserDeleted,
		events.Liked, events.Unliked, events.Played, events.ItemScored,
	}
}

// Apply folds one event: what is of a user at the user's home, what is of an item at the item's, as far as they are held.
func (c *Counters) Apply(ev events.Event, b *projections.Batch) error {
	c.batch, c.eventCopy, c.ev = b, ev, &c.eventCopy
	if err := c.applyEvent(c.ev); err != nil || ev.Item == "" || !b.Holds(ev.Item) {
		return err
	}
	return c.dropExpiredVersions(itemPartition(ev.Item))
}

func (c *Counters) applyEvent(ev *events.Event) error {
	if ev.Backfill {
		if closed, err := c.isErased(ev.User); err != nil || closed {
			return err
		}
	}
	switch ev.Kind {
	case events.BoardCreated:
		if ev.Backfill {
			return nil
		}
		return c.recordBoardRecreated(ev.User, ev.Board)
	case events.BoardDeleted:
		return c.deleteBoard()
	case events.PinCreated, events.PinMoved:
		return c.applyPin()
	case events.PinDeleted:
		if !c.batch.Holds(ev.User) {
			return nil
		}
		return c.deletePin()
	case events.Liked, events.Unliked:
		if !c.batch.Holds(ev.Item) {
			return nil
		}
		return c.applyLike()
	case events.Played:
		return c.applyPlay()
	case events.ItemScored:
		return c.overrideScore()
	case events.UserDeleted:
		return c.eraseUser()
	}
	return fmt.Errorf("counters: event of kind %s, which it does not read", ev.Kind)
}

func (c *Counters) deleteBoard() error {
	if c.batch.Holds(c.ev.User) {
		if err := c.endPinsOnBoard(); err != nil {
			return err
		}
	}
	return c.recordBoardDeleted(c.ev.User, c.ev.Board)
}

// pinned folds a pin that is created or moved. A live pin to a deleted board is void: only its re-pin counts.
func (c *Counters) applyPin() error {
	ev := c.ev
	void := false
	if !ev.Backfill {
		life, err := c.readBoardDeletion(ev.User, ev.Board)
		if err != nil {
			return err
		}
		void = life.isDeleted
	}

	isRepin := ev.RepinUser != ""
	if ev.Kind == events.PinCreated && c.batch.Holds(ev.Item) && (isRepin || !void) {
		if err := c.recordNamedItem(); err != nil {
			return err
		}
	}

	if void || !c.batch.Holds(ev.User) {
		return nil
	}
	if ev.Kind == events.PinMoved {
		return c.movePin()
	}
	return c.createPin()
}

func (c *Counters) eraseUser() error {
	if err := c.eraseUserRows(); err != nil {
		return err
	}
	c.writeTombstone(c.ev.User)
	return nil
}
