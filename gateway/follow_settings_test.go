package gateway

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	onlyFavorites = skeinv1.FollowSetting_FOLLOW_SETTING_FAVORITE
	onlyBell      = skeinv1.FollowSetting_FOLLOW_SETTING_NOTIFY
)

// followSettings are the settings that a list shows of each user.
func followSettings(entries []*skeinv1.FollowEntry) map[string]*skeinv1.FollowSettings {
	settings := map[string]*skeinv1.FollowSettings{}
	for _, e := range entries {
		settings[e.GetUserId()] = e.GetSettings()
	}
	return settings
}

// TestSettingsOfFollowsAreInLists: every answer about the follows of a user has their settings, and
// a list can be of those with a setting.
func TestSettingsOfFollowsAreInLists(t *testing.T) {
	w := newWorld(t, withAllStores)
	notify := &skeinv1.FollowSettings{Notify: true}
	favorite := &skeinv1.FollowSettings{HideRepins: true, Favorite: true}
	at := w.publish(
		follow("ann", "bob"), follow("ann", "cid"), followBoard("ann", "dan", "cats"), follow("dan", "bob"), pinned("bob", "", "p"),
		setFollow("ann", "dan", favorite), setFollow("ann", "bob", notify), setFollow("ann", "eve", notify),
	)

	expected := map[string]*skeinv1.FollowSettings{"bob": notify, "cid": nil, "dan": favorite}
	following := ask(w, w.graph.ListFollowing, &skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: at})
	if diff := cmp.Diff(expected, followSettings(following.GetEntries()), protocmp.Transform()); diff != "" {
		t.Errorf("ListFollowing (-expected +got):\n%s", diff)
	}
	mutuals := ask(w, w.graph.ListMutuals, &skeinv1.ListMutualsRequest{ViewerId: "ann", UserId: "bob", AtLeast: at})
	if diff := cmp.Diff(map[string]*skeinv1.FollowSettings{"dan": favorite}, followSettings(mutuals.GetEntries()), protocmp.Transform()); diff != "" {
		t.Errorf("ListMutuals (-expected +got):\n%s", diff)
	}
	followers := ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at})
	for user, settings := range followSettings(followers.GetEntries()) {
		if settings != nil {
			t.Errorf("the followers of bob show the settings of %s: %v", user, settings)
		}
	}

	for only, users := range map[skeinv1.FollowSetting][]string{onlyFavorites: {"dan"}, onlyBell: {"bob"}} {
		list := ask(w, w.graph.ListFollowing, &skeinv1.ListFollowingRequest{UserId: "ann", Only: only, AtLeast: at})
		var got []string
		for _, e := range list.GetEntries() {
			got = append(got, e.GetUserId())
		}
		if !slices.Equal(got, users) || int(list.GetTotalSize()) != len(users) {
			t.Errorf("only %v: expected %v, got %v of %d", only, users, got, list.GetTotalSize())
		}
	}
	kind := skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT
	_, err := w.graph.ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{UserId: "ann", Kind: &kind, Only: onlyBell}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("kind and only together: expected invalid_argument, got %v", err)
	}

	states := ask(w, w.feed.BatchGetViewerState, &skeinv1.BatchGetViewerStateRequest{
		ViewerId: "ann", Keys: []*skeinv1.ViewerStateKey{{Target: &skeinv1.ViewerStateKey_Pin{Pin: pinNamed("bob", "p")}}}, AtLeast: at,
	})
	if diff := cmp.Diff(notify, states.GetStates()[0].GetFollowSettings(), protocmp.Transform()); diff != "" {
		t.Errorf("BatchGetViewerState (-expected +got):\n%s", diff)
	}
}

// TestSettingsOfFollowsArePrivate: a caller who is bound to a user gets the settings of the own
// follows only.
func TestSettingsOfFollowsArePrivate(t *testing.T) {
	g := newGuarded(t)
	set := &skeinv1.FollowSettings{Notify: true}
	at := g.as(g.tokens["all"]).publish(follow("ann", "cid"), follow("bob", "cid"), setFollow("ann", "cid", set), setFollow("bob", "cid", set))

	for name, c := range map[string]struct {
		token, user string
		visible     bool
	}{
		"own":         {"ann", "ann", true},
		"of another":  {"ann", "bob", false},
		"application": {"reader", "bob", true},
	} {
		t.Run(name, func(t *testing.T) {
			for way, options := range map[string][]connect.ClientOption{"plain": nil, "JSON": {connect.WithProtoJSON()}} {
				w := g.as(g.tokens[c.token], options...)
				list := ask(w, w.graph.ListFollowing, &skeinv1.ListFollowingRequest{UserId: c.user, AtLeast: at})
				if got := list.GetEntries()[0].GetSettings(); (got != nil) != c.visible {
					t.Errorf("%s: expected settings to be visible: %v, got %v", way, c.visible, got)
				}

				_, err := w.graph.ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{
					UserId: c.user, Only: onlyBell, AtLeast: at,
				}))
				if (err == nil) != c.visible || err != nil && connect.CodeOf(err) != connect.CodePermissionDenied {
					t.Errorf("%s, only NOTIFY: expected it to be allowed: %v, got %v", way, c.visible, err)
				}
			}
		})
	}
}

// TestFeedsOfFavoritesAndOfTheBell: a feed with only has the pins of the owners whose follow has
// the setting, page by page, and its counts, its watcher and its explanations agree with it.
func TestFeedsOfFavoritesAndOfTheBell(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(
		follow("ann", "bob"), follow("ann", "cid"), followBoard("ann", "dan", "cats"),
		setFollow("ann", "bob", &skeinv1.FollowSettings{Notify: true}),
		setFollow("ann", "dan", &skeinv1.FollowSettings{Notify: true, Favorite: true}),
		pinned("bob", "", "b1"), pinned("cid", "", "c1"), pinned("dan", "cats", "d1"), pinned("dan", "", "d2"), pinned("ann", "", "a1"),
		repinned("bob", "b2", "i", "cid", "c1"),
	)

	read := func(req *skeinv1.ReadFeedRequest) (pins []string) {
		req.ReaderId, req.AtLeast, req.PageSize = "ann", at, 1
		for {
			page := w.readFeed(req)
			for _, e := range page.GetEntries() {
				pins = append(pins, e.GetPinId())
			}
			if page.GetNextPageToken() == "" {
				return pins
			}
			req.Start = after(page.GetNextPageToken())
		}
	}
	for name, c := range map[string]struct {
		req      *skeinv1.ReadFeedRequest
		expected []string
	}{
		"favorites":             {&skeinv1.ReadFeedRequest{Only: onlyFavorites}, []string{"d1"}},
		"favorites with own":    {&skeinv1.ReadFeedRequest{Only: onlyFavorites, IncludeOwn: true}, []string{"a1", "d1"}},
		"bell, without re-pins": {&skeinv1.ReadFeedRequest{Only: onlyBell}, []string{"d1", "b1"}},
		"all":                   {&skeinv1.ReadFeedRequest{}, []string{"b2", "d1", "c1", "b1"}},
		"bell by heat":          {&skeinv1.ReadFeedRequest{Only: onlyBell, Order: skeinv1.FeedOrder_FEED_ORDER_TRENDING}, []string{"d1", "b1"}},
		"bell, one for each":    {&skeinv1.ReadFeedRequest{Only: onlyBell, OnePerItem: true}, []string{"d1", "b1"}},
		"all again, from inbox": {&skeinv1.ReadFeedRequest{}, []string{"b2", "d1", "c1", "b1"}},
		"bell, seen left out":   {&skeinv1.ReadFeedRequest{Only: onlyBell, HideSeen: true}, []string{"d1", "b1"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := read(c.req); !slices.Equal(got, c.expected) {
				t.Errorf("expected %v, got %v", c.expected, got)
			}
		})
	}

	// A token is for the feed that it is from.
	page := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Only: onlyBell, PageSize: 1, AtLeast: at})
	_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(&skeinv1.ReadFeedRequest{
		ReaderId: "ann", Only: onlyFavorites, Start: after(page.GetNextPageToken()),
	}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a token of another feed: expected invalid_argument, got %v", err)
	}

	// The badge of the bell counts from the read marker, or from the top that the caller gives.
	badge := func(newer, at string) uint32 {
		return ask(w, w.feed.CountNewer, &skeinv1.CountNewerRequest{ReaderId: "ann", Only: onlyBell, NewerThan: newer, AtLeast: at}).GetCount()
	}
	if n := badge("", at); n != 2 {
		t.Errorf("badge without a marker: expected 2, got %d", n)
	}
	newest := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Only: onlyBell, AtLeast: at})
	watch := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", Only: onlyBell, AtLeast: at})
	if m := watch.next(); m.GetCount() != 2 {
		t.Errorf("watched badge: expected 2, got %v", m)
	}
	at = w.publish(feedRead("ann", newest.GetEntries()[0].GetCreateTime()), pinned("bob", "", "b3"), pinned("cid", "", "c2"))
	for way, newer := range map[string]string{"marker": "", "top": newest.GetNewestToken()} {
		if n := badge(newer, at); n != 1 {
			t.Errorf("badge from the %s: expected 1, got %d", way, n)
		}
	}
	for count := watch.next().GetCount(); count != 1; {
		count = watch.next().GetCount()
	}

	type reasons = []skeinv1.AbsenceReason
	notSelected := skeinv1.AbsenceReason_ABSENCE_REASON_NOT_SELECTED
	for pin, expected := range map[string]reasons{"bob b1": nil, "bob b2": {repinsHidden}, "cid c1": {notSelected}} {
		var owner, id string
		if _, err := fmt.Sscan(pin, &owner, &id); err != nil {
			t.Fatal(err)
		}
		why := ask(w, w.feed.ExplainPin, &skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: pinNamed(owner, id), Only: onlyBell, AtLeast: at})
		if diff := cmp.Diff(expected, why.GetReasons()); diff != "" || why.GetInFeed() != (expected == nil) {
			t.Errorf("ExplainPin of %s (-expected +got):\n%s\n%v", pin, diff, why)
		}
	}
}

// TestFeedOfFavoritesHasTheOwnersSetLast: a feed with only has the owners for whom the setting was
// set last, as many as the limit says.
func TestFeedOfFavoritesHasTheOwnersSetLast(t *testing.T) {
	w := newWorld(t, withFeeds)
	favorite := &skeinv1.FollowSettings{Favorite: true}
	var evs []*skeinv1.Event
	for i := range inbox.MaxSelectedOwners + 1 {
		owner := fmt.Sprintf("owner%d", i)
		evs = append(evs, follow("ann", owner), setFollow("ann", owner, favorite))
	}
	first, last := "owner0", fmt.Sprintf("owner%d", inbox.MaxSelectedOwners)
	evs = append(evs, pinned(first, "", "p"), pinned("owner1", "", "p"), pinned(last, "", "p"))
	var at string
	for part := range slices.Chunk(evs, 500) {
		at = w.publish(part...)
	}

	owners := func() (names []string) {
		for _, e := range w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Only: onlyFavorites, AtLeast: at}).GetEntries() {
			names = append(names, e.GetOwnerId())
		}
		return names
	}
	if got, expected := owners(), []string{last, "owner1"}; !slices.Equal(got, expected) {
		t.Errorf("expected %v, got %v", expected, got)
	}
	at = w.publish(setFollow("ann", first, favorite))
	if got, expected := owners(), []string{last, first}; !slices.Equal(got, expected) {
		t.Errorf("after it was set again: expected %v, got %v", expected, got)
	}
}

// muteUntil returns the event of a mute that ends at a time.
func muteUntil(user, muted string, end time.Time) *skeinv1.Event {
	ev := mute(user, muted)
	ev.GetUserMuted().Until = timestamppb.New(end)
	return ev
}

// TestMuteEndsByItself: a mute with an end leaves feeds, lists and counts when the log time has
// reached the end, and a watcher is told.
func TestMuteEndsByItself(t *testing.T) {
	w := newWorld(t, withAllStores)
	farEnd := time.Now().Add(24 * time.Hour).Truncate(time.Microsecond)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "p"), muteUntil("ann", "bob", farEnd), mute("ann", "cid"))

	type state struct {
		feed, muted int
		counted     uint32
		muting      bool
		until       time.Time
	}
	look := func(at string) (s state) {
		s.feed = len(w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}).GetEntries())
		list := ask(w, w.graph.ListMuted, &skeinv1.ListMutedRequest{UserId: "ann", AtLeast: at})
		s.muted = len(list.GetEntries())
		counts := ask(w, w.graph.BatchGetFollowCounts, &skeinv1.BatchGetFollowCountsRequest{UserIds: []string{"ann"}, AtLeast: at})
		if s.counted = counts.GetUsers()[0].GetMutedCount(); s.counted != list.GetTotalSize() {
			t.Errorf("%d muted users are counted, and the list has %d", s.counted, list.GetTotalSize())
		}
		relationship := ask(w, w.graph.BatchGetRelationships, &skeinv1.BatchGetRelationshipsRequest{
			ViewerId: "ann", UserIds: []string{"bob"}, AtLeast: at,
		}).GetRelationships()[0]
		s.muting = relationship.GetMuting()
		if relationship.GetMuteUntil() != nil {
			s.until = relationship.GetMuteUntil().AsTime()
		}
		return s
	}
	if got, expected := look(at), (state{muted: 2, counted: 2, muting: true, until: farEnd.UTC()}); got != expected {
		t.Errorf("before the end: expected %+v, got %+v", expected, got)
	}
	watch := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: at})
	if m := watch.next(); m.GetCount() != 0 {
		t.Errorf("watched before the end: expected 0, got %v", m)
	}

	// The latest mute decides. Plays of somebody else move the log time past its end.
	end := time.Now().Add(50 * time.Millisecond)
	w.publish(muteUntil("ann", "bob", end))
	for time.Now().Before(end.Add(time.Millisecond)) {
		w.publish(played("dan", "i"))
	}
	at = w.publish(played("dan", "i"))
	if got, expected := look(at), (state{feed: 1, muted: 1, counted: 1}); got != expected {
		t.Errorf("after the end: expected %+v, got %+v", expected, got)
	}
	for count := watch.next().GetCount(); count != 1; {
		count = watch.next().GetCount()
	}
}
