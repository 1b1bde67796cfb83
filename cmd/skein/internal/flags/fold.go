package flags

import (
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/notifications"
	"github.com/skein-feed/skein/projections/seen"
)

// FoldFlags are the settings of folds. A store that was built with other settings does not
// continue, except with another FeedKeep.
type FoldFlags struct {
	FeedThreshold   int64         `help:"Pins of users with more followers in a partition are merged on reading; -1 pushes all pins." default:"39"`
	FeedKeep        int           `help:"How many of its newest entries an inbox keeps in memory. A feed by heat ranks only these." default:"1000"`
	HeatHalfLife    time.Duration `help:"Time in which the heat of an item halves." default:"24h"`
	HeatPerPlay     uint32        `help:"Heat that a play adds to an item." default:"1"`
	HeatPerReaction string        `help:"Heat that a reaction adds, by kind, such as like=4,save=3. Other kinds add none." default:"like=4" placeholder:"KIND=N,…"`
	HeatPerRepin    uint32        `help:"Heat that a re-pin adds." default:"8"`

	SeenWindow         int     `help:"Calendar months for which plays count as seen by default, the current one included." default:"4"`
	SeenRetention      int     `help:"Calendar months for which plays are kept, the current one included. No call can ask for more." default:"6"`
	SeenFalsePositives float64 `help:"Share of unseen items that may count as seen by mistake, over --seen-window." default:"0.001"`

	NotificationsKeep int `help:"How many of the newest notifications of each kind are kept for a user." default:"1000"`
}

// Settings returns the settings of the flags. A flag with a value that cannot be is an error.
func (f *FoldFlags) Settings() (all.Settings, error) {
	s := all.Settings{
		Inbox:    inbox.DefaultSettings(),
		Seen:     seen.Settings{Window: f.SeenWindow, Retention: f.SeenRetention, FalsePositives: f.SeenFalsePositives},
		Counters: counters.DefaultSettings(),

		Notifications: notifications.Settings{Keep: f.NotificationsKeep},
	}
	s.Inbox.Threshold = f.FeedThreshold
	s.Inbox.Keep = f.FeedKeep
	s.Counters.HalfLife = f.HeatHalfLife
	s.Counters.PlayWeight = f.HeatPerPlay
	s.Counters.ReactionWeights = f.HeatPerReaction
	s.Counters.RepinWeight = f.HeatPerRepin

	if err := s.Inbox.Check(); err != nil {
		return all.Settings{}, command.Usagef("--feed-…: %w", err)
	}
	if err := s.Counters.Check(); err != nil {
		return all.Settings{}, command.Usagef("--heat-…: %w", err)
	}
	if err := s.Seen.Check(); err != nil {
		return all.Settings{}, command.Usagef("--seen-…: %w", err)
	}
	if err := s.Notifications.Check(); err != nil {
		return all.Settings{}, command.Usagef("--notifications-…: %w", err)
	}
	return s, nil
}
