package feedwatch

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
)

// takeWakeUp reports whether a watcher was woken since the last call.
func takeWakeUp(w *Watcher) bool {
	select {
	case <-w.Changed():
		return true
	default:
		return false
	}
}

// wokenWatchers returns the names of the watchers that the events wake. There are three:
//   - "ann" counts the unread entries of ann, who follows bob and cid,
//   - "ann hiding" counts the entries of ann's feed without those that she has seen,
//   - "dan" counts the unread entries of dan, who follows nobody.
//
// Each event has an envelope of its own.
func wokenWatchers(t *testing.T, evs ...events.Event) map[string]bool {
	t.Helper()
	all := New(nil, nil, nil)
	f := &follower{watchers: all, month: monthOf(events.Cursor{})}
	byName := map[string]*Watcher{}
	addWatcher := func(name, reader string, hidesSeen bool, owners ...string) {
		w := &Watcher{
			watchers: all, reader: reader, hidesSeen: hidesSeen, unreadOnly: !hidesSeen, wake: make(chan struct{}, 1), follower: f,
		}
		all.byReader[reader] = append(all.byReader[reader], w)
		err := w.AddOwners(func(add func(string) error) error {
			for _, owner := range owners {
				if err := add(owner); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		byName[name] = w
	}
	addWatcher("ann", "ann", false, "bob", "cid")
	addWatcher("ann hiding", "ann", true, "bob", "cid")
	addWatcher("dan", "dan", false)

	for _, ev := range evs {
		f.dispatchEnvelopes([]*events.Envelope{{Events: []events.Event{ev}, Cursor: events.Cursor{LastTime: ev.Time}}})
	}

	woken := map[string]bool{}
	for name, w := range byName {
		if takeWakeUp(w) {
			woken[name] = true
		}
	}
	return woken
}

// TestEventsWakeOnlyConcernedWatchers checks that events wake the watchers whose number they may
// change, and no others.
func TestEventsWakeOnlyConcernedWatchers(t *testing.T) {
	none := map[string]bool{}
	all := map[string]bool{"ann": true, "ann hiding": true, "dan": true}
	annUnread := map[string]bool{"ann": true}
	annHiding := map[string]bool{"ann hiding": true}
	annBoth := map[string]bool{"ann": true, "ann hiding": true}
	dan := map[string]bool{"dan": true}
	const year = 365 * 24 * 3600 * 1_000_000 // in microseconds

	for name, c := range map[string]struct {
		want map[string]bool
		evs  []events.Event
	}{
		"a pin of an owner who is followed": {annBoth, []events.Event{{Kind: events.PinCreated, User: "bob"}}},
		"a pin is deleted":                  {annBoth, []events.Event{{Kind: events.PinDeleted, User: "cid"}}},
		"a pin is moved":                    {annBoth, []events.Event{{Kind: events.PinMoved, User: "cid"}}},
		"a pin is edited":                   {none, []events.Event{{Kind: events.PinEdited, User: "cid"}, {Kind: events.PinEdited, User: "dan"}}},
		"a board is deleted":                {annBoth, []events.Event{{Kind: events.BoardDeleted, User: "cid"}}},
		"an owner is deleted":               {all, []events.Event{{Kind: events.UserDeleted, User: "cid"}}},
		"a pin of the reader":               {dan, []events.Event{{Kind: events.PinCreated, User: "dan"}}},
		"a pin of an owner without watcher": {none, []events.Event{{Kind: events.PinCreated, User: "eve"}}},
		"a follow by the reader":            {dan, []events.Event{{Kind: events.UserFollowed, User: "dan", Peer: "eve"}}},
		"a follow of the reader":            {none, []events.Event{{Kind: events.UserFollowed, User: "eve", Peer: "dan"}}},
		"a mute by the reader":              {dan, []events.Event{{Kind: events.UserMuted, User: "dan", Peer: "eve"}}},
		"settings of a follow":              {dan, []events.Event{{Kind: events.FollowSettingsSet, User: "dan", Peer: "eve"}}},
		"a block of the reader":             {dan, []events.Event{{Kind: events.UserBlocked, User: "eve", Peer: "dan"}}},
		"a play of the reader":              {annHiding, []events.Event{{Kind: events.Played, User: "ann"}}},
		"items are served to the reader":    {annHiding, []events.Event{{Kind: events.Served, User: "ann"}}},
		"a play of a reader who hides none": {none, []events.Event{{Kind: events.Played, User: "dan"}}},
		"an item is hidden":                 {annBoth, []events.Event{{Kind: events.ItemHidden, User: "ann", Item: "i"}}},
		"an item is shown again":            {dan, []events.Event{{Kind: events.ItemShown, User: "dan", Item: "i"}}},
		"a read marker":                     {annUnread, []events.Event{{Kind: events.FeedRead, User: "ann"}}},
		"a reaction and a score":            {none, []events.Event{{Kind: events.Reacted, User: "ann"}, {Kind: events.ItemScored}}},
		"the end of an import":              {all, []events.Event{{Kind: events.BackfillClosed}}},
		"a new month":                       {annHiding, []events.Event{{Kind: events.Reacted, User: "eve", Time: year}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, wokenWatchers(t, c.evs...)); diff != "" {
				t.Errorf("watchers that were woken (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFollowedOwnersAreWatched checks that an owner whose pins an event adds to the feed is among
// the owners of the watcher when the next event is processed, even within one envelope.
func TestFollowedOwnersAreWatched(t *testing.T) {
	for name, relation := range map[string]events.Event{
		"a follow of a user":      {Kind: events.UserFollowed, User: "dan", Peer: "eve"},
		"a follow of a board":     {Kind: events.BoardFollowed, User: "dan", Peer: "eve"},
		"the reader ends a block": {Kind: events.UserUnblocked, User: "dan", Peer: "eve"},
		"the owner ends a block":  {Kind: events.UserUnblocked, User: "eve", Peer: "dan"},
	} {
		t.Run(name, func(t *testing.T) {
			all := New(nil, nil, nil)
			f := &follower{watchers: all, month: monthOf(events.Cursor{})}
			w := &Watcher{watchers: all, reader: "dan", wake: make(chan struct{}, 1), follower: f}
			all.byReader["dan"] = []*Watcher{w}

			// The relation comes twice, to show that the owner is added only once.
			pin := events.Event{Kind: events.PinCreated, User: "eve"}
			f.dispatchEnvelopes([]*events.Envelope{{Events: []events.Event{relation, relation, pin}}})
			if !takeWakeUp(w) {
				t.Error("the relation did not wake the watcher of the reader")
			}
			if got := len(w.owners); got != 1 {
				t.Errorf("owners of the watcher after the relation: got %d, want 1", got)
			}

			// The relation has woken the watcher in any case. Only this step shows that pins do.
			f.dispatchEnvelopes([]*events.Envelope{{Events: []events.Event{pin}}})
			if !takeWakeUp(w) {
				t.Error("a later pin of the owner did not wake the watcher")
			}
		})
	}
}
