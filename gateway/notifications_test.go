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

// reactedTo returns a reaction on a pin that names the pin. The item of the pin has the same id.
func reactedTo(user, owner, pin, kind string) *skeinv1.Event {
	ev := reacted(user, pin, kind)
	ev.GetReacted().Pin = &skeinv1.Pin{OwnerId: owner, PinId: pin}
	return ev
}

// unreactedTo returns the end of a reaction that reactedTo returns.
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
func summarize(groups []*skeinv1.NotificationGroup) (summaries []groupSummary) {
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
		summaries = append(summaries, groupSummary{
			Kind: kinds[g.GetKind()], Pin: g.GetPin().GetPinId(), Actors: actors, Count: g.GetActorCount(),
			Unread: g.GetUnread(), Unseen: g.GetUnseen(),
		})
	}
	return summaries
}

// TestNotificationsTellWhatOthersDid checks the groups of a user after each of a series of events:
// which actors the groups have, what hides them, and whether they are unread and unseen.
func TestNotificationsTellWhatOthersDid(t *testing.T) {
	w := newWorld(t, withNotifications)

	// Own reactions, reactions of private kinds, and reactions that do not name the pin notify
	// nobody.
	w.publish(pinned("ann", "", "p"), pinned("ann", "", "q"))
	at := w.publish(
		follow("bob", "ann"), reactedTo("bob", "ann", "p", ""), reactedTo("cid", "ann", "p", "wow"), reactedTo("cid", "ann", "p", "like"),
		reactedTo("ann", "ann", "p", ""), reactedTo("dan", "ann", "p", "_bookmark"), reacted("eve", "p", ""),
		repinned("dan", "r", "q", "ann", "q"),
	)
	followed := groupSummary{"followed", "", []string{"bob"}, 1, true, true}
	reactions := groupSummary{"reacted", "p", []string{"cid", "bob"}, 2, true, true}
	repins := groupSummary{"repinned", "q", []string{"dan"}, 1, true, true}
	checkGroups := func(when, at string, unseen uint32, want ...groupSummary) {
		t.Helper()
		if diff := cmp.Diff(want, summarize(w.readNotifications("ann", 0, "", at).GetGroups())); diff != "" {
			t.Errorf("%s: groups (-want +got):\n%s", when, diff)
		}
		if n := w.countNotifications("ann", at); n != unseen {
			t.Errorf("%s: got %d unseen groups, want %d", when, n, unseen)
		}
	}
	checkGroups("at first", at, 3, repins, reactions, followed)

	// Each step begins with the groups that the step before it has left.
	for _, step := range []struct {
		name   string
		ev     *skeinv1.Event
		unseen uint32
		want   []groupSummary
	}{
		{"a muted actor", mute("ann", "dan"), 2, []groupSummary{reactions, followed}},
		{"an actor who is no longer muted", &skeinv1.Event{Kind: &skeinv1.Event_UserUnmuted{
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
		checkGroups("after "+step.name, w.publish(step.ev), step.unseen, step.want...)
	}
}

// showingReaction returns a reaction on a pin to an item that need not be the item of the pin.
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

// TestNotificationMarkersNeverMoveBack checks which groups are seen and read after reports of a
// device, and that a report that comes late changes nothing.
func TestNotificationMarkersNeverMoveBack(t *testing.T) {
	w := newWorld(t, withNotifications)
	w.publish(pinned("ann", "", "p"))
	w.publish(follow("bob", "ann"))
	at := w.publish(reactedTo("bob", "ann", "p", ""))
	groups := w.readNotifications("ann", 0, "", at).GetGroups()
	if len(groups) != 2 {
		t.Fatalf("got the groups %v, want two", groups)
	}
	reaction := groups[0]
	followed := groups[1]

	// The second report of the follow comes late, after the report of the reaction.
	at = w.publish(notificationsSeen("ann", followed.GetNewestTime()))
	if got := w.countNotifications("ann", at); got != 1 {
		t.Errorf("after the follow was seen: got %d unseen groups, want 1", got)
	}
	w.publish(notificationsSeen("ann", reaction.GetNewestTime()))
	at = w.publish(notificationsSeen("ann", followed.GetNewestTime()))
	if got := w.countNotifications("ann", at); got != 0 {
		t.Errorf("after a late report: got %d unseen groups, want 0", got)
	}

	// A report may be about a single group, or about all up to a time.
	unread := func(at string) (unread []bool) {
		for _, g := range w.readNotifications("ann", 0, "", at).GetGroups() {
			unread = append(unread, g.GetUnread())
		}
		return unread
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

	// A new notification makes its group unread again.
	at = w.publish(reactedTo("cid", "ann", "p", ""))
	if diff := cmp.Diff([]bool{true, false}, unread(at)); diff != "" {
		t.Errorf("after a new reaction (-want +got):\n%s", diff)
	}
}

// TestGroupsOfASessionHoldStill checks that a group that exists throughout a session of pages comes
// exactly once, although groups lose their newest notification and get new ones meanwhile.
// Notifications that come after the session began are left out.
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

	timesShown := map[string]int{}
	page := w.readNotifications("ann", 2, "", at)
	for number := 0; ; number++ {
		for _, g := range page.GetGroups() {
			timesShown[g.GetPin().GetPinId()]++
			if g.GetActors()[0].GetUserId() == "dan" {
				t.Errorf("page %d: got a reaction of dan in %v, want none, because it came after the session began", number, g)
			}
		}
		if page.GetNextPageToken() == "" {
			break
		}

		// A group that was shown loses its newest notification and falls behind the others, and
		// the last group gets a new notification. There is also a reaction on a pin that does not
		// exist.
		lastPin := pins[len(pins)-1-number]
		at = w.publish(unreactedTo("cid", "ann", lastPin, ""), reactedTo("dan", "ann", "a", ""), reactedTo("dan", "ann", "new", ""))
		page = w.readNotifications("ann", 2, page.GetNextPageToken(), at)
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}, timesShown); diff != "" {
		t.Errorf("how often each group was shown (-want +got):\n%s", diff)
	}

	// A token is refused for another user.
	_, err := w.notifyClient.ReadNotifications(t.Context(), connect.NewRequest(&skeinv1.ReadNotificationsRequest{
		UserId: "bob", PageToken: w.readNotifications("ann", 2, "", at).GetNextPageToken(),
	}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
}

// TestWatchNotificationsReachesTheCount checks that a watcher gets the count of
// CountNotifications after each event that changes it. A browser that opens its stream again must
// get the current count.
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

	// The watcher may send other counts on its way to the last one.
	var last *skeinv1.WatchNotificationsResponse
	receiveCount := func(when, at string) {
		t.Helper()
		want := w.countNotifications("ann", at)
		for last == nil || last.GetCount() != want {
			if !stream.Receive() {
				t.Fatalf("%s: the stream ended with error %v, want the count %d first", when, stream.Err(), want)
			}
			last = stream.Msg()
		}
	}
	receiveCount("at first", at)
	for _, step := range []struct {
		name string
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
		{"a report that all are seen", notificationsSeen("ann", timestamppb.New(time.Now().Add(time.Hour)))},
		{"a fifth reaction", reactedTo("fay", "ann", "p", "")},
		{"the end of a user", deletedUser("fay")},
	} {
		at = w.publish(step.ev)
		receiveCount("after "+step.name, at)
	}

	// A browser opens its stream again, with the id of an event that the first stream did not get.
	var first, resumed skeinv1.WatchNotificationsResponse
	browser := w.eventSource(t, connectv1.NotificationServiceWatchNotificationsProcedure, `{"userId":"ann"}`)
	browser.next(&first)
	at = w.publish(reactedTo("gus", "ann", "p", ""))
	resumedBrowser := w.eventSource(t, connectv1.NotificationServiceWatchNotificationsProcedure, `{"userId":"ann"}`, "Last-Event-ID", at)
	resumedBrowser.next(&resumed)
	if want := w.countNotifications("ann", at); resumed.GetCount() != want || resumed.GetCount() == first.GetCount() {
		t.Errorf("resumed stream: got the count %d, want %d, and not %d as before", resumed.GetCount(), want, first.GetCount())
	}
}

// TestNotificationsRefuseBadPositionsAndTokens checks that a call with a position from the future
// or a malformed token gets an error that names the field.
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
		t.Errorf("WatchNotifications: got the message %v, want none", stream.Msg())
	}
	wantError(t, stream.Err(), connect.CodeInvalidArgument, "INVALID_POSITION", "at_least")
}
