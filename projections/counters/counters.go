package counters

import (
	"fmt"
	"time" //nolint:depguard // for the durations of settings: no clock is read

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Settings are the settings that the fold reads. They are part of the fingerprint (I4). The inbox
// ranks feeds by its own copy of these settings: give it equal values, so that feeds and lists rank
// alike.
type Settings struct {
	// HalfLife is the time in which heat halves. Default 24 hours.
	HalfLife time.Duration
	// PlayWeight and RepinWeight are what one play or re-pin adds to the heat of an item. Defaults
	// 1 and 8.
	PlayWeight, RepinWeight uint32
	// ReactionWeights is what one reaction of a kind adds, for each kind that adds heat, in the
	// form "like=4,save=3". Private kinds never add heat. Default "like=4".
	ReactionWeights string
}

// DefaultSettings returns the defaults.
func DefaultSettings() Settings {
	return Settings{HalfLife: 24 * time.Hour, PlayWeight: 1, RepinWeight: 8, ReactionWeights: "like=4"}
}

// Check returns an error that names a setting that is out of its bounds.
func (s Settings) Check() error {
	if s.HalfLife < time.Second || s.HalfLife > 10*365*24*time.Hour {
		return fmt.Errorf("counters: the half-life is %v, not 1 s to 10 years", s.HalfLife)
	}
	_, err := parseReactionWeights(s.ReactionWeights)
	return err
}

// Counters is the projection. It reuses buffers from event to event, so one Counters folds into one
// store, from one goroutine.
type Counters struct {
	settings Settings
	// reactionWeights are those of the settings, by [events.Event.Reaction]. weightsErr is set if
	// the settings have no valid ones.
	reactionWeights map[string]uint32
	weightsErr      error

	batch *projections.Batch
	ev    *events.Event
	// eventCopy is what ev points to. Copying the event costs less than allocating it for each call
	// of Apply.
	eventCopy events.Event
	// maxPinsByName and maxListsByScore are the constants of the same names. Tests set smaller
	// ones, to exceed them with few pins.
	maxPinsByName, maxListsByScore int
	// globalListOnly is what [Counters.readListsByScore] returns for most items, which is not
	// allocated each time.
	globalListOnly [][]byte
	// key and value are buffers, which may be reused after every call of the batch, because it
	// copies keys and values.
	key, value []byte
}

var (
	_ projections.Projection       = (*Counters)(nil)
	_ projections.SettingsProvider = (*Counters)(nil)
	_ projections.Regional         = (*Counters)(nil)
	_ projections.IteratedOnly     = (*Counters)(nil)
)

// New returns the projection.
func New(s Settings) *Counters {
	weights, err := parseReactionWeights(s.ReactionWeights)
	return &Counters{
		settings: s, reactionWeights: weights, weightsErr: err,
		maxPinsByName: maxPinsByName, maxListsByScore: maxListsByScore,
		globalListOnly: [][]byte{globalListPrefix()},
	}
}

// Name returns "counters".
func (*Counters) Name() string { return "counters" }

// Version returns the version of the fold and its rows:
//
//	2  an item names the boards that it is on, if they are few
//	3  a pin keeps when it left the board of its history
//	4  every row has one home, and a re-pin counts once
//	5  a like has its time, and users have lists of what they like
//	6  a pin keeps whether it is a re-pin
//	7  a live re-pin on a deleted board counts
//	8  likes are reactions of a kind, and items have lists of who reacted
//	9  the row of an item has its score, and earlier scores are numbered
//	10 of several moves of a pin in a row, the first and the last are kept
func (*Counters) Version() uint32 { return 10 }

// Settings returns the settings as they are part of the fingerprint.
func (c *Counters) Settings() map[string]string {
	s := c.settings
	return map[string]string{
		"half-life":        s.HalfLife.String(),
		"play-weight":      fmt.Sprint(s.PlayWeight),
		"reaction-weights": formatReactionWeights(c.reactionWeights),
		"repin-weight":     fmt.Sprint(s.RepinWeight),
	}
}

// Kinds returns the kinds of events that begin or end something that is counted.
func (*Counters) Kinds() []events.Kind {
	return []events.Kind{
		events.BoardCreated, events.BoardDeleted, events.PinCreated, events.PinMoved, events.PinDeleted, events.UserDeleted,
		events.Reacted, events.Unreacted, events.Played, events.ItemScored,
	}
}

// Apply folds one event, at the home of its user and at the home of its item, as far as this store
// holds them.
func (c *Counters) Apply(ev events.Event, b *projections.Batch) error {
	c.batch = b
	c.eventCopy = ev
	c.ev = &c.eventCopy

	if err := c.applyEvent(c.ev); err != nil {
		return err
	}

	// Every event about an item also drops a few expired versions of its partition (versions.go).
	if ev.Item == "" || !b.Holds(ev.Item) {
		return nil
	}
	return c.dropExpiredVersions(itemPartition(ev.Item))
}

// applyEvent folds one event at all homes that it concerns and that the store holds.
func (c *Counters) applyEvent(ev *events.Event) error {
	// The process checks its settings when it starts. This stops a caller who has not checked them
	// from folding without weights, which would make other rows.
	if c.weightsErr != nil {
		return c.weightsErr
	}

	// A backfill comes before every live event in the order of facts, whenever it arrives. So the
	// deletion of its user has removed what it adds.
	if ev.Backfill {
		erased, err := c.isErased(ev.User)
		if err != nil || erased {
			return err
		}
	}

	switch ev.Kind {
	case events.BoardCreated:
		if ev.Backfill {
			return nil // history comes before the deletion, so the board stays deleted
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
	case events.Reacted, events.Unreacted:
		if !c.batch.Holds(ev.Item) {
			return nil
		}
		return c.applyReaction()
	case events.Played:
		return c.applyPlay()
	case events.ItemScored:
		return c.overrideScore()
	case events.UserDeleted:
		return c.eraseUser()
	}
	return fmt.Errorf("counters: event of kind %s, which it does not read", ev.Kind)
}

// deleteBoard folds a board_deleted: the owner's home ends the pins, and every store records the
// deletion.
func (c *Counters) deleteBoard() error {
	if c.batch.Holds(c.ev.User) {
		if err := c.endPinsOnBoard(); err != nil {
			return err
		}
	}
	return c.recordBoardDeleted(c.ev.User, c.ev.Board)
}

// applyPin folds a pin that is created or moved. A live event about a deleted board is void: only
// its re-pin counts.
func (c *Counters) applyPin() error {
	ev := c.ev
	isVoid := false
	if !ev.Backfill {
		deletion, err := c.readBoardDeletion(ev.User, ev.Board)
		if err != nil {
			return err
		}
		isVoid = deletion.isDeleted
	}

	// The home of the item counts re-pins, void ones included, and lists the item as a candidate.
	isRepin := ev.RepinUser != ""
	if ev.Kind == events.PinCreated && c.batch.Holds(ev.Item) && (isRepin || !isVoid) {
		if err := c.recordNamedItem(); err != nil {
			return err
		}
	}

	if isVoid || !c.batch.Holds(ev.User) {
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
