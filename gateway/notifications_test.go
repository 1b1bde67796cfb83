package gateway

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// reactedTo is a reaction on a pin that shows an item of its own id.
func reactedTo(user, owner, pin, kind string) *skeinv1.Event {
	ev := reacted(user, pin, kind)
	ev.GetReacted().Pin = &skeinv1.Pin{OwnerId: owner, PinId: pin}
	return ev
}

// unreactedTo is the end of such a reaction.
func unreactedTo(user, owner, pin, kind string) *skeinv1.Event {
	ev := unreacted(user, pin, kind)
	ev.GetUnreacted().Pin = &skeinv1.Pin{OwnerId: owner, PinId: pin}
	return ev
}

func notificationsSeen(user string, at *timestamppb.Timestamp) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_NotificationsSeen{NotificationsSeen: &skeinv1.NotificationsSeen{UserId: user, SeenTime: at}}}
}

func notificationsRead(user, group string, at *timestamppb.Timestamp) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_NotificationsRead{NotificationsRead: &skeinv1.NotificationsRead{
		UserId: user, ReadTime: at, GroupId: group,
	}}}
}

// readNotifications reads a page of groups.
func (w *world) readNotifications(user string, size int32, token, atLeast string) *skeinv1.ReadNotificationsResponse {
	w.t.Helper()
	return ask(w, w.notifyClient.ReadNotifications, &skeinv1.ReadNotificationsRequest{
		UserId: user, PageSize: size, PageToken: token, AtLeast: atLeast,
	})
}

// countNotifications returns the number of unseen groups.
func (w *world) countNotifications(user, atLeast string) uint32 {
	w.t.Helper()
	return ask(w, w.notifyClient.CountNotifications, &skeinv1.CountNotificationsRequest{UserId: user, AtLeast: atLeast}).GetCount()
}

// groupSummary is what the tests compare of a group: all but its times.
type groupSummary struct {
	Kind, Pin string
	Actors    []string
	Count     uint32
	Unread    bool
	Unseen    bool
}

// summarize returns the summaries of groups.
func summarize(groups []*skeinv1.NotificationGroup) (list []groupSummary) {
	kinds := map[skeinv1.NotificationKind]string{
		skeinv1.NotificationKind_NOTIFICATION_KIND_FOLLOWED: "followed",
		skeinv1.NotificationKind_NOTIFICATION_KIND_REACTED:  "reacted",
		skeinv1.NotificationKind_NOTIFICATION_KIND_REPINNED: "repinned",
	}
	for _, g := range groups {
		var actors []string
		for _, a := range g.GetActors() {
			actors = append(actors, a.GetUserId())
		}
		list = append(list, groupSummary{kinds[g.GetKind()], g.GetPin().GetPinId(), actors, g.GetActorCount(), g.GetUnread(), g.GetUnseen()})
	}
	return list
}

// TestNotificationsTellWhatOthersDid checks the groups of a user after each of some events: which
// actors they have, what hides them, and what is unread and unseen.
func TestNotificationsTellWhatOthersDid(t *testing.T) {
	w := newWorld(t, withNotifications)
	w.publish(pinned("ann", "", "p"), pinned("ann", "", "q"))
	at := w.publish(
		follow("bob", "ann"), reactedTo("bob", "ann", "p", ""), reactedTo("cid", "ann", "p", "wow"), reactedTo("cid", "ann", "p", "like"),
		reactedTo("ann", "ann", "p", ""), reactedTo("dan", "ann", "p", "_bookmark"), reacted("eve", "p", ""),
		repinned("dan", "r", "q", "ann", "q"),
	)
	followed := groupSummary{"followed", "", []string{"bob"}, 1, true, true}
	reactions := groupSummary{"reacted", "p", []string{"cid", "bob"}, 2, true, true}
	repins := groupSummary{"repinned", "q", []string{"dan"}, 1, true, true}
	check := func(what, at string, unseen uint32, want ...groupSummary) {
		t.Helper()
		if diff := cmp.Diff(want, summarize(w.readNotifications("ann", 0, "", at).GetGroups())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if got := w.countNotifications("ann", at); got != unseen {
			t.Errorf("%s: got %d unseen groups, want %d", what, got, unseen)
		}
	}
	check("all", at, 3, repins, reactions, followed)

	for _, step := range []struct {
		what   string
		ev     *skeinv1.Event
		unseen uint32
		want   []groupSummary
	}{
		{"a muted actor", mute("ann", "dan"), 2, []groupSummary{reactions, followed}},
		{"an actor who is muted no more", &skeinv1.Event{Kind: &skeinv1.Event_UserUnmuted{
			UserUnmuted: &skeinv1.UserUnmuted{UserId: "ann", TargetUserId: "dan"},
		}}, 3, []groupSummary{repins, reactions, followed}},
		{"an actor who blocks", block("dan", "ann"), 2, []groupSummary{reactions, followed}},
		{"a blocked actor", block("ann", "cid"), 2, []groupSummary{{"reacted", "p", []string{"bob"}, 1, true, true}, followed}},
		{"a reaction that ends", unreactedTo("bob", "ann", "p", ""), 1, []groupSummary{followed}},
		{"a reaction that does not name the pin", reacted("bob", "p", ""), 1, []groupSummary{followed}},
		{"a reaction to another item", showingReaction("bob", "ann", "p", "other"), 1, []groupSummary{followed}},
		{"a reaction on the other pin", reactedTo("bob", "ann", "q", ""), 2, []groupSummary{{"reacted", "q", []string{"bob"}, 1, true, true}, followed}},
		{"a pin that ends", unpinned("ann", "q"), 1, []groupSummary{followed}},
		{"an unfollow", unfollow("bob", "ann"), 0, nil},
	} {
		check(step.what, w.publish(step.ev), step.unseen, step.want...)
	}
}

// showingReaction is a reaction on a pin to an item, which the pin may not show.
func showingReaction(user, owner, pin, item string) *skeinv1.Event {
	ev := reacted(user, item, "")
	ev.GetReacted().Pin = &skeinv1.Pin{OwnerId: owner, PinId: pin}
	return ev
}

// TestRepinThatEndsUnnamedNotifiesNobody checks that a re-pin notifies nobody once it is gone,
// whether or not its end names the original.
func TestRepinThatEndsUnnamedNotifiesNobody(t *testing.T) {
	w := newWorld(t, withNotifications)
	w.publish(pinned("ann", "", "p"), repinned("bob", "r", "p", "ann", "p"), repinned("cid", "s", "p", "ann", "p"))
	end := unpinned("cid", "s")
	end.GetPinDeleted().RepinOf = &skeinv1.Pin{OwnerId: "ann", PinId: "p"}
	at := w.publish(end)
	want := []groupSummary{{"repinned", "p", []string{"bob"}, 1, true, true}}
	if diff := cmp.Diff(want, summarize(w.readNotifications("ann", 0, "", at).GetGroups())); diff != "" {
		t.Errorf("after an end that names the original (-want +got):\n%s", diff)
	}
	at = w.publish(unpinned("bob", "r"))
	if got := w.readNotifications("ann", 0, "", at).GetGroups(); len(got) != 0 {
		t.Errorf("after an end that names nothing: got %v, want no groups", got)
	}
}

// TestNotificationMarkersNeverMoveBack checks what seen and read mean, and that late reports of
// devices change nothing.
func TestNotificationMarkersNeverMoveBack(t *testing.T) {
	w := newWorld(t, withNotifications)
	w.publish(pinned("ann", "", "p"))
	w.publish(follow("bob", "ann"))
	at := w.publish(reactedTo("bob", "ann", "p", ""))
	groups := w.readNotifications("ann", 0, "", at).GetGroups()
	reaction, followed := groups[0], groups[1]

	at = w.publish(notificationsSeen("ann", followed.GetNewestTime()))
	if got := w.countNotifications("ann", at); got != 1 {
		t.Errorf("after the follow was seen: got %d unseen groups, want 1", got)
	}
	w.publish(notificationsSeen("ann", reaction.GetNewestTime()))
	at = w.publish(notificationsSeen("ann", followed.GetNewestTime()))
	if got := w.countNotifications("ann", at); got != 0 {
		t.Errorf("after a late report: got %d unseen groups, want 0", got)
	}

	unread := func(at string) (list []bool) {
		for _, g := range w.readNotifications("ann", 0, "", at).GetGroups() {
			list = append(list, g.GetUnread())
		}
		return list
	}
	w.publish(notificationsRead("ann", reaction.GetGroupId(), reaction.GetNewestTime()))
	at = w.publish(notificationsRead("ann", reaction.GetGroupId(), followed.GetNewestTime()))
	if diff := cmp.Diff([]bool{false, true}, unread(at)); diff != "" {
		t.Errorf("after the reactions were read (-want +got):\n%s", diff)
	}
	at = w.publish(notificationsRead("ann", "", followed.GetNewestTime()))
	if diff := cmp.Diff([]bool{false, false}, unread(at)); diff != "" {
		t.Errorf("after all was read (-want +got):\n%s", diff)
	}
	at = w.publish(reactedTo("cid", "ann", "p", ""))
	if diff := cmp.Diff([]bool{true, false}, unread(at)); diff != "" {
		t.Errorf("after a new reaction (-want +got):\n%s", diff)
	}
}

// TestGroupsOfASessionHoldStill checks that a group that is there throughout a session of pages
// comes exactly once, although groups lose their newest notification and get new ones meanwhile,
// and that what came later is left out.
func TestGroupsOfASessionHoldStill(t *testing.T) {
	w := newWorld(t, withNotifications)
	pins := []string{"a", "b", "c", "d", "e"}
	var at string
	for _, pin := range pins {
		w.publish(pinned("ann", "", pin))
		w.publish(reactedTo("bob", "ann", pin, ""))
	}
	for _, pin := range pins {
		at = w.publish(reactedTo("cid", "ann", pin, ""))
	}

	count := map[string]int{}
	page := w.readNotifications("ann", 2, "", at)
	for n := 0; ; n++ {
		for _, g := range page.GetGroups() {
			count[g.GetPin().GetPinId()]++
			if g.GetActors()[0].GetUserId() == "dan" {
				t.Errorf("page %d has a reaction that came after the session began", n)
			}
		}
		if page.GetNextPageToken() == "" {
			break
		}
		// The groups that were shown first fall behind the others, and the last one gets a new
		// notification.
		at = w.publish(unreactedTo("cid", "ann", pins[len(pins)-1-n], ""), reactedTo("dan", "ann", "a", ""), reactedTo("dan", "ann", "new", ""))
		page = w.readNotifications("ann", 2, page.GetNextPageToken(), at)
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}, count); diff != "" {
		t.Errorf("how often the groups came (-want +got):\n%s", diff)
	}

	_, err := w.notifyClient.ReadNotifications(t.Context(), connect.NewRequest(&skeinv1.ReadNotificationsRequest{
		UserId: "bob", PageToken: w.readNotifications("ann", 2, "", at).GetNextPageToken(),
	}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
}

// TestWatchNotificationsReachesTheCount checks that a watcher gets the number of CountNotifications
// after everything that changes it, and that a stream of a browser that broke resumes with the
// current number.
func TestWatchNotificationsReachesTheCount(t *testing.T) {
	w := newWorld(t, withNotifications)
	at := w.publish(pinned("ann", "", "p"), pinned("ann", "", "q"))
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	stream, err := w.notifyClient.WatchNotifications(ctx, connect.NewRequest(&skeinv1.WatchNotificationsRequest{UserId: "ann", AtLeast: at}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	var last *skeinv1.WatchNotificationsResponse
	reach := func(what, at string) {
		t.Helper()
		want := w.countNotifications("ann", at)
		for last == nil || last.GetCount() != want {
			if !stream.Receive() {
				t.Fatalf("%s: %v", what, stream.Err())
			}
			last = stream.Msg()
		}
	}
	reach("nothing", at)
	for _, step := range []struct {
		what string
		ev   *skeinv1.Event
	}{
		{"a follow", follow("bob", "ann")},
		{"a reaction", reactedTo("bob", "ann", "p", "")},
		{"a re-pin", repinned("dan", "r", "q", "ann", "q")},
		{"the end of the re-pin, which names nothing", unpinned("dan", "r")},
		{"a mute", mute("ann", "bob")},
		{"another reaction", reactedTo("cid", "ann", "p", "")},
		{"a block by the actor", block("cid", "ann")},
		{"a third reaction", reactedTo("eve", "ann", "q", "")},
		{"the end of the pin", unpinned("ann", "q")},
		{"a fourth reaction", reactedTo("eve", "ann", "p", "")},
		{"what is seen", notificationsSeen("ann", timestamppb.New(time.Now().Add(time.Hour)))},
		{"a fifth reaction", reactedTo("fay", "ann", "p", "")},
		{"the end of a user", deletedUser("fay")},
	} {
		at = w.publish(step.ev)
		reach(step.what, at)
	}

	var first, resumed skeinv1.WatchNotificationsResponse
	browser := w.eventSource(t, connectv1.NotificationServiceWatchNotificationsProcedure, `{"userId":"ann"}`)
	browser.next(&first)
	at = w.publish(reactedTo("gus", "ann", "p", ""))
	again := w.eventSource(t, connectv1.NotificationServiceWatchNotificationsProcedure, `{"userId":"ann"}`, "Last-Event-ID", at)
	again.next(&resumed)
	if want := w.countNotifications("ann", at); resumed.GetCount() != want || resumed.GetCount() == first.GetCount() {
		t.Errorf("got %d before and %d after the stream resumed, want %d after", first.GetCount(), resumed.GetCount(), want)
	}
}

// TestNotificationsRefuseBadPositionsAndTokens checks that calls whose stores cannot be opened get
// an error that names the field.
func TestNotificationsRefuseBadPositionsAndTokens(t *testing.T) {
	w := newWorld(t, withNotifications)
	ahead := w.log.Position(99).String()

	_, err := w.notifyClient.ReadNotifications(t.Context(), connect.NewRequest(&skeinv1.ReadNotificationsRequest{UserId: "ann", AtLeast: ahead}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_POSITION", "at_least")
	_, err = w.notifyClient.ReadNotifications(t.Context(), connect.NewRequest(&skeinv1.ReadNotificationsRequest{UserId: "ann", PageToken: "x"}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
	_, err = w.notifyClient.CountNotifications(t.Context(), connect.NewRequest(&skeinv1.CountNotificationsRequest{UserId: "ann", AtLeast: ahead}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_POSITION", "at_least")

	stream, err := w.notifyClient.WatchNotifications(t.Context(), connect.NewRequest(&skeinv1.WatchNotificationsRequest{UserId: "ann", AtLeast: ahead}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if stream.Receive() {
		t.Error("expected no message, got one")
	}
	wantError(t, stream.Err(), connect.CodeInvalidArgument, "INVALID_POSITION", "at_least")
}
