package feedwatch

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
)

// wokenWatchers returns which watchers the events wake. Each event has an envelope of its own.
func wokenWatchers(evs ...events.Event) map[string]bool {
	a := New(nil, nil, nil)
	f := &follower{watchers: a}
	watchers := map[string]*Watcher{}
	for name, c := range map[string]struct {
		reader    string
		hidesSeen bool
		owners    []string
	}{
		"ann": {"ann", false, []string{"bob", "cid"}}, "ann hiding": {"ann", true, []string{"bob", "cid"}}, "dan": {"dan", false, nil},
	} {
		w := &Watcher{watchers: a, reader: c.reader, hidesSeen: c.hidesSeen, unreadOnly: !c.hidesSeen, wake: make(chan struct{}, 1), follower: f}
		a.byReader[c.reader] = append(a.byReader[c.reader], w)
		_ = w.AddOwners(func(add func(string) error) error {
			for _, owner := range c.owners {
				_ = add(owner)
			}
			return nil
		})
		watchers[name] = w
	}
	f.month = monthOf(events.Cursor{})
	for _, ev := range evs {
		f.dispatchEnvelopes([]*events.Envelope{{Events: []events.Event{ev}, Cursor: events.Cursor{LastTime: ev.Time}}})
	}
	got := map[string]bool{}
	for name, w := range watchers {
		select {
		case <-w.Changed():
			got[name] = true
		default:
		}
	}
	return got
}

// Events wake the watchers whose number they may change, and no others.
func TestEventsWakeOnlyConcernedWatchers(t *testing.T) {
	none := map[string]bool{}
	all := map[string]bool{"ann": true, "ann hiding": true, "dan": true}
	anns := map[string]bool{"ann": true, "ann hiding": true}
	hiding := map[string]bool{"ann hiding": true}
	dans := map[string]bool{"dan": true}
	const year = 365 * 24 * 3600 * 1_000_000
	for name, c := range map[string]struct {
		want map[string]bool
		evs  []events.Event
	}{
		"a pin of an owner who is followed": {anns, []events.Event{{Kind: events.PinCreated, User: "bob"}}},
		"a pin that goes":                   {anns, []events.Event{{Kind: events.PinDeleted, User: "cid"}}},
		"a pin that moves":                  {anns, []events.Event{{Kind: events.PinMoved, User: "cid"}}},
		"an edit of a pin":                  {none, []events.Event{{Kind: events.PinEdited, User: "cid"}, {Kind: events.PinEdited, User: "dan"}}},
		"a board that goes":                 {anns, []events.Event{{Kind: events.BoardDeleted, User: "cid"}}},
		"an owner who goes":                 {all, []events.Event{{Kind: events.UserDeleted, User: "cid"}}},
		"an own pin":                        {dans, []events.Event{{Kind: events.PinCreated, User: "dan"}}},
		"a pin of another owner":            {none, []events.Event{{Kind: events.PinCreated, User: "eve"}}},
		"a follow by the reader":            {dans, []events.Event{{Kind: events.UserFollowed, User: "dan", Peer: "eve"}}},
		"a follow of the reader":            {none, []events.Event{{Kind: events.UserFollowed, User: "eve", Peer: "dan"}}},
		"a mute by the reader":              {dans, []events.Event{{Kind: events.UserMuted, User: "dan", Peer: "eve"}}},
		"settings of a follow":              {dans, []events.Event{{Kind: events.FollowSettingsSet, User: "dan", Peer: "eve"}}},
		"a block of the reader":             {dans, []events.Event{{Kind: events.UserBlocked, User: "eve", Peer: "dan"}}},
		"a play of the reader":              {hiding, []events.Event{{Kind: events.Played, User: "ann"}}},
		"a serve":                           {hiding, []events.Event{{Kind: events.Served, User: "ann"}}},
		"a play of a reader who hides none": {none, []events.Event{{Kind: events.Played, User: "dan"}}},
		"a hidden item":                     {anns, []events.Event{{Kind: events.ItemHidden, User: "ann", Item: "i"}}},
		"an item that is shown again":       {dans, []events.Event{{Kind: events.ItemShown, User: "dan", Item: "i"}}},
		"a read marker":                     {map[string]bool{"ann": true}, []events.Event{{Kind: events.FeedRead, User: "ann"}}},
		"a like, a score":                   {none, []events.Event{{Kind: events.Reacted, User: "ann"}, {Kind: events.ItemScored}}},
		"the end of an import":              {all, []events.Event{{Kind: events.BackfillClosed}}},
		"a new month":                       {hiding, []events.Event{{Kind: events.Reacted, User: "eve", Time: year}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, wokenWatchers(c.evs...)); diff != "" {
				t.Errorf("watchers that were woken (-expected +got):\n%s", diff)
			}
		})
	}
}

// An owner whose pins an event adds to the feed is among the owners when the next event is
// processed, even within one envelope.
func TestFollowedOwnersAreWatched(t *testing.T) {
	for _, relation := range []events.Event{
		{Kind: events.UserFollowed, User: "dan", Peer: "eve"},
		{Kind: events.BoardFollowed, User: "dan", Peer: "eve"},
		{Kind: events.UserUnblocked, User: "dan", Peer: "eve"},
		{Kind: events.UserUnblocked, User: "eve", Peer: "dan"},
	} {
		a := New(nil, nil, nil)
		f := &follower{watchers: a, month: monthOf(events.Cursor{})}
		w := &Watcher{watchers: a, reader: "dan", wake: make(chan struct{}, 1), follower: f}
		a.byReader["dan"] = []*Watcher{w}
		pin := events.Event{Kind: events.PinCreated, User: "eve"}
		f.dispatchEnvelopes([]*events.Envelope{{Events: []events.Event{relation, relation, pin}}})
		<-w.Changed()
		f.dispatchEnvelopes([]*events.Envelope{{Events: []events.Event{pin}}})
		select {
		case <-w.Changed():
		default:
			t.Errorf("after %v: a pin of the owner does not wake the watcher", relation)
		}
		if len(w.owners) != 1 {
			t.Errorf("after %v twice: the watcher has %d owners, expected 1", relation, len(w.owners))
		}
	}
}
