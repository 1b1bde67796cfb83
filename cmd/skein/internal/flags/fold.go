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

// FoldFlags are the settings of folds. A store continues only with the settings with which it was built, but for FeedKeep.
type FoldFlags struct {
	FeedThreshold   int64         `help:"Followers in a partition beyond which pins are merged on reading; -1 means push all." default:"39"`
	FeedKeep        int           `help:"Entries of a feed that an inbox keeps in memory, and that are ranked by heat." default:"1000"`
	HeatHalfLife    time.Duration `help:"Time in which the heat of an item halves." default:"24h"`
	HeatPerPlay     uint32        `help:"The heat that a play adds to an item." default:"1"`
	HeatPerReaction string        `help:"The heat that a reaction of each kind adds, as like=4,save=3. Others add none." default:"like=4" placeholder:"KIND=N,…"`
	HeatPerRepin    uint32        `help:"The heat that a re-pin adds." default:"8"`

	SeenWindow         int     `help:"Months for which plays count as seen by default, the current one included." default:"4"`
	SeenRetention      int     `help:"Months for which plays are kept, the current one included: the longest window." default:"6"`
	SeenFalsePositives float64 `help:"The share of unseen candidates that may be taken for seen over --seen-window." default:"0.001"`

	NotificationsKeep int `help:"Notifications of each kind that are kept for a user, the newest ones." default:"1000"`
}

// Settings returns the settings of the flags.
func (f *FoldFlags) Settings() (all.Settings, error) {
	s := all.Settings{
		Inbox:    inbox.DefaultSettings(),
		Seen:     seen.Settings{Window: f.SeenWindow, Retention: f.SeenRetention, FalsePositives: f.SeenFalsePositives},
		Counters: counters.DefaultSettings(),

		Notifications: notifications.Settings{Keep: f.NotificationsKeep},
	}
	s.Inbox.Threshold, s.Inbox.Keep = f.FeedThreshold, f.FeedKeep
	s.Counters.HalfLife = f.HeatHalfLife
	s.Counters.PlayWeight, s.Counters.ReactionWeights, s.Counters.RepinWeight = f.HeatPerPlay, f.HeatPerReaction, f.HeatPerRepin
	for _, c := range []struct {
		flags string
		err   error
	}{
		{"--feed-…", s.Inbox.Check()},
		{"--heat-…", s.Counters.Check()},
		{"--seen-…", s.Seen.Check()},
		{"--notifications-…", s.Notifications.Check()},
	} {
		if c.err != nil {
			return all.Settings{}, command.Usagef("%s: %w", c.flags, c.err)
		}
	}
	return s, nil
}
