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

// followSettings returns the settings of each user in a list.
func followSettings(entries []*skeinv1.FollowEntry) map[string]*skeinv1.FollowSettings {
	settings := map[string]*skeinv1.FollowSettings{}
	for _, e := range entries {
		settings[e.GetUserId()] = e.GetSettings()
	}
	return settings
}

// TestSettingsOfFollowsAreInLists checks that every answer about the follows of a user has their
// settings, and that a list can be limited to follows with a setting.
func TestSettingsOfFollowsAreInLists(t *testing.T) {
	w := newWorld(t, withAllStores)
	notify := &skeinv1.FollowSettings{Notify: true}
	favorite := &skeinv1.FollowSettings{HideRepins: true, Favorite: true}
	at := w.publish(
		follow("ann", "bob"), follow("ann", "cid"), followBoard("ann", "dan", "cats"), follow("dan", "bob"), pinned("bob", "", "p"),
		setFollow("ann", "dan", favorite), setFollow("ann", "bob", notify), setFollow("ann", "eve", notify),
	)

	// Settings belong to the user who follows, so only this user's own follows show them.
	wantFollowing := map[string]*skeinv1.FollowSettings{"bob": notify, "cid": nil, "dan": favorite}
	following := ask(w, w.graph.ListFollowing, &skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: at})
	if diff := cmp.Diff(wantFollowing, followSettings(following.GetEntries()), protocmp.Transform()); diff != "" {
		t.Errorf("ListFollowing (-want +got):\n%s", diff)
	}
	wantMutuals := map[string]*skeinv1.FollowSettings{"dan": favorite}
	mutuals := ask(w, w.graph.ListMutuals, &skeinv1.ListMutualsRequest{ViewerId: "ann", UserId: "bob", AtLeast: at})
	if diff := cmp.Diff(wantMutuals, followSettings(mutuals.GetEntries()), protocmp.Transform()); diff != "" {
		t.Errorf("ListMutuals (-want +got):\n%s", diff)
	}
	wantFollowers := map[string]*skeinv1.FollowSettings{"ann": nil, "dan": nil}
	followers := ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at})
	if diff := cmp.Diff(wantFollowers, followSettings(followers.GetEntries()), protocmp.Transform()); diff != "" {
		t.Errorf("ListFollowers (-want +got):\n%s", diff)
	}

	// The setting of eve, whom ann does not follow, adds nothing to the lists of one setting.
	for only, want := range map[skeinv1.FollowSetting][]string{onlyFavorites: {"dan"}, onlyBell: {"bob"}} {
		list := ask(w, w.graph.ListFollowing, &skeinv1.ListFollowingRequest{UserId: "ann", Only: only, AtLeast: at})
		if users := userIDs(list.GetEntries()); !slices.Equal(users, want) || int(list.GetTotalSize()) != len(want) {
			t.Errorf("ListFollowing, only %v: got %v and a total of %d, want %v", only, users, list.GetTotalSize(), want)
		}
	}
	kind := skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT
	_, err := w.graph.ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{UserId: "ann", Kind: &kind, Only: onlyBell}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("ListFollowing, kind and only together: got %v, want invalid_argument", err)
	}

	states := ask(w, w.feed.BatchGetViewerState, &skeinv1.BatchGetViewerStateRequest{
		ViewerId: "ann", Keys: []*skeinv1.ViewerStateKey{{Target: &skeinv1.ViewerStateKey_Pin{Pin: pinNamed("bob", "p")}}}, AtLeast: at,
	})
	if diff := cmp.Diff(notify, states.GetStates()[0].GetFollowSettings(), protocmp.Transform()); diff != "" {
		t.Errorf("BatchGetViewerState (-want +got):\n%s", diff)
	}
}

// userIDs returns the users of a list.
func userIDs(entries []*skeinv1.FollowEntry) (users []string) {
	for _, e := range entries {
		users = append(users, e.GetUserId())
	}
	return users
}

// TestSettingsOfFollowsArePrivate checks that a caller who is bound to a user gets the settings of
// this user's own follows only.
func TestSettingsOfFollowsArePrivate(t *testing.T) {
	g := newGuarded(t)
	notify := &skeinv1.FollowSettings{Notify: true}
	at := g.as(g.tokens["all"]).publish(
		follow("ann", "cid"), follow("bob", "cid"), setFollow("ann", "cid", notify), setFollow("bob", "cid", notify))

	for name, c := range map[string]struct {
		token, user string
		visible     bool
	}{
		"own":         {"ann", "ann", true},
		"of another":  {"ann", "bob", false},
		"application": {"reader", "bob", true},
	} {
		t.Run(name, func(t *testing.T) {
			for encoding, options := range map[string][]connect.ClientOption{"binary": nil, "JSON": {connect.WithProtoJSON()}} {
				w := g.as(g.tokens[c.token], options...)
				list := ask(w, w.graph.ListFollowing, &skeinv1.ListFollowingRequest{UserId: c.user, AtLeast: at})
				if got := list.GetEntries()[0].GetSettings(); (got != nil) != c.visible {
					t.Errorf("%s: got the settings %v, want some: %v", encoding, got, c.visible)
				}

				// A list of the follows with a setting would reveal the setting.
				_, err := w.graph.ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{
					UserId: c.user, Only: onlyBell, AtLeast: at,
				}))
				if c.visible && err != nil {
					t.Errorf("%s, only NOTIFY: got error %v, want none", encoding, err)
				}
				if !c.visible && connect.CodeOf(err) != connect.CodePermissionDenied {
					t.Errorf("%s, only NOTIFY: got error %v, want permission_denied", encoding, err)
				}
			}
		})
	}
}

// TestFeedsOfFavoritesAndOfTheBell checks that a feed with the option only has the pins of the
// owners whose follow has the setting, page by page. Its counts, its watcher and its explanations
// must agree with it.
func TestFeedsOfFavoritesAndOfTheBell(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(
		follow("ann", "bob"), follow("ann", "cid"), followBoard("ann", "dan", "cats"),
		setFollow("ann", "bob", &skeinv1.FollowSettings{Notify: true}),
		setFollow("ann", "dan", &skeinv1.FollowSettings{Notify: true, Favorite: true}),
		pinned("bob", "", "b1"), pinned("cid", "", "c1"), pinned("dan", "cats", "d1"), pinned("dan", "", "d2"), pinned("ann", "", "a1"),
		repinned("bob", "b2", "i", "cid", "c1"),
	)

	readPins := func(req *skeinv1.ReadFeedRequest) (pins []string) {
		req.ReaderId = "ann"
		req.AtLeast = at
		req.PageSize = 1
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
		req  *skeinv1.ReadFeedRequest
		want []string
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
			if diff := cmp.Diff(c.want, readPins(c.req)); diff != "" {
				t.Errorf("pins of the feed (-want +got):\n%s", diff)
			}
		})
	}

	// A feed does not take the page token of another feed.
	page := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Only: onlyBell, PageSize: 1, AtLeast: at})
	_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(&skeinv1.ReadFeedRequest{
		ReaderId: "ann", Only: onlyFavorites, Start: after(page.GetNextPageToken()),
	}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("page token of another feed: got error %v, want invalid_argument", err)
	}

	// CountNewer counts from the read marker, or from the top that the caller gives.
	countNewer := func(newer, at string) uint32 {
		return ask(w, w.feed.CountNewer, &skeinv1.CountNewerRequest{ReaderId: "ann", Only: onlyBell, NewerThan: newer, AtLeast: at}).GetCount()
	}
	if n := countNewer("", at); n != 2 {
		t.Errorf("CountNewer without a read marker: got %d, want 2", n)
	}
	newest := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Only: onlyBell, AtLeast: at})
	watch := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", Only: onlyBell, AtLeast: at})
	if m := watch.next(); m.GetCount() != 2 {
		t.Errorf("WatchFeed without a read marker: got %v, want the count 2", m)
	}

	// Once the feed is read, only the pin that comes afterwards is newer.
	at = w.publish(feedRead("ann", newest.GetEntries()[0].GetCreateTime()), pinned("bob", "", "b3"), pinned("cid", "", "c2"))
	for from, newer := range map[string]string{"read marker": "", "top": newest.GetNewestToken()} {
		if n := countNewer(newer, at); n != 1 {
			t.Errorf("CountNewer from the %s: got %d, want 1", from, n)
		}
	}

	// The watcher may send other counts on its way to the last one.
	for count := watch.next().GetCount(); count != 1; {
		count = watch.next().GetCount()
	}

	// ExplainPin gives no reason for the absence of a pin that is in the feed.
	for _, c := range []struct {
		owner, pin string
		reasons    []skeinv1.AbsenceReason
	}{
		{"bob", "b1", nil},
		{"bob", "b2", []skeinv1.AbsenceReason{repinsHidden}},
		{"cid", "c1", []skeinv1.AbsenceReason{skeinv1.AbsenceReason_ABSENCE_REASON_NOT_SELECTED}},
	} {
		explained := ask(w, w.feed.ExplainPin, &skeinv1.ExplainPinRequest{
			ReaderId: "ann", Pin: pinNamed(c.owner, c.pin), Only: onlyBell, AtLeast: at,
		})
		if diff := cmp.Diff(c.reasons, explained.GetReasons()); diff != "" {
			t.Errorf("ExplainPin of %s: reasons (-want +got):\n%s", c.pin, diff)
		}
		if wantInFeed := c.reasons == nil; explained.GetInFeed() != wantInFeed {
			t.Errorf("ExplainPin of %s: got in_feed %v, want %v", c.pin, explained.GetInFeed(), wantInFeed)
		}
	}
}

// TestFeedOfFavoritesHasTheOwnersSetLast checks that a feed with the option only has the owners for
// whom the setting was set last, up to the limit.
func TestFeedOfFavoritesHasTheOwnersSetLast(t *testing.T) {
	w := newWorld(t, withFeeds)
	favorite := &skeinv1.FollowSettings{Favorite: true}
	var evs []*skeinv1.Event
	for i := range inbox.MaxSelectedOwners + 1 {
		owner := fmt.Sprintf("owner%d", i)
		evs = append(evs, follow("ann", owner), setFollow("ann", owner, favorite))
	}

	// There is an owner more than the limit allows, so the feed leaves out the first one.
	first := "owner0"
	last := fmt.Sprintf("owner%d", inbox.MaxSelectedOwners)
	evs = append(evs, pinned(first, "", "p"), pinned("owner1", "", "p"), pinned(last, "", "p"))
	var at string
	for batch := range slices.Chunk(evs, 500) {
		at = w.publish(batch...)
	}
	ownersInFeed := func() (names []string) {
		for _, e := range w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Only: onlyFavorites, AtLeast: at}).GetEntries() {
			names = append(names, e.GetOwnerId())
		}
		return names
	}
	if diff := cmp.Diff([]string{last, "owner1"}, ownersInFeed()); diff != "" {
		t.Errorf("owners in the feed (-want +got):\n%s", diff)
	}

	// Once the setting of the first one is set again, it is that of owner1 that was set longest
	// ago.
	at = w.publish(setFollow("ann", first, favorite))
	if diff := cmp.Diff([]string{last, first}, ownersInFeed()); diff != "" {
		t.Errorf("owners in the feed after the setting of %s was set again (-want +got):\n%s", first, diff)
	}
}

// muteUntil returns the event of a mute that ends at a time.
func muteUntil(user, muted string, end time.Time) *skeinv1.Event {
	ev := mute(user, muted)
	ev.GetUserMuted().Until = timestamppb.New(end)
	return ev
}

// TestMuteEndsByItself checks that a mute with an end has no effect on feeds, lists and counts once
// the log time has reached the end, and that a watcher gets the new count.
func TestMuteEndsByItself(t *testing.T) {
	w := newWorld(t, withAllStores)
	farEnd := time.Now().Add(24 * time.Hour).Truncate(time.Microsecond)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "p"), muteUntil("ann", "bob", farEnd), mute("ann", "cid"))

	// muteState is what a reader sees of mutes.
	type muteState struct {
		PinsInFeed, MutedUsers int
		Muting                 bool
		MuteUntil              time.Time
	}
	readMuteState := func(at string) (s muteState) {
		t.Helper()
		s.PinsInFeed = len(w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}).GetEntries())

		// The list, its total and the count must have the same number of users.
		list := ask(w, w.graph.ListMuted, &skeinv1.ListMutedRequest{UserId: "ann", AtLeast: at})
		s.MutedUsers = len(list.GetEntries())
		if int(list.GetTotalSize()) != s.MutedUsers {
			t.Errorf("ListMuted: got a total of %d, want %d as in the list", list.GetTotalSize(), s.MutedUsers)
		}
		counts := ask(w, w.graph.BatchGetFollowCounts, &skeinv1.BatchGetFollowCountsRequest{UserIds: []string{"ann"}, AtLeast: at})
		if n := counts.GetUsers()[0].GetMutedCount(); int(n) != s.MutedUsers {
			t.Errorf("BatchGetFollowCounts: got %d muted users, want %d as in the list", n, s.MutedUsers)
		}

		relationship := ask(w, w.graph.BatchGetRelationships, &skeinv1.BatchGetRelationshipsRequest{
			ViewerId: "ann", UserIds: []string{"bob"}, AtLeast: at,
		}).GetRelationships()[0]
		s.Muting = relationship.GetMuting()
		if relationship.GetMuteUntil() != nil {
			s.MuteUntil = relationship.GetMuteUntil().AsTime()
		}
		return s
	}

	want := muteState{MutedUsers: 2, Muting: true, MuteUntil: farEnd.UTC()}
	if diff := cmp.Diff(want, readMuteState(at)); diff != "" {
		t.Errorf("before the end (-want +got):\n%s", diff)
	}
	watch := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: at})
	if m := watch.next(); m.GetCount() != 0 {
		t.Errorf("WatchFeed before the end: got %v, want the count 0", m)
	}

	// The latest mute decides. Plays of another user move the log time past its end.
	end := time.Now().Add(50 * time.Millisecond)
	w.publish(muteUntil("ann", "bob", end))
	for time.Now().Before(end.Add(time.Millisecond)) {
		w.publish(played("dan", "i"))
	}
	at = w.publish(played("dan", "i"))
	want = muteState{PinsInFeed: 1, MutedUsers: 1}
	if diff := cmp.Diff(want, readMuteState(at)); diff != "" {
		t.Errorf("after the end (-want +got):\n%s", diff)
	}
	for count := watch.next().GetCount(); count != 1; {
		count = watch.next().GetCount()
	}
}
