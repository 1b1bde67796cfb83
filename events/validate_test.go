package events

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// newEventsOfEveryKind returns a good live event of every kind, a backfill of every kind that can
// be backfilled, and a few with empty fields.
func newEventsOfEveryKind() []*skeinv1.Event {
	live := []*skeinv1.Event{
		{Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{UserId: "ann", TargetUserId: "17"}}},
		{Kind: &skeinv1.Event_UserUnfollowed{UserUnfollowed: &skeinv1.UserUnfollowed{UserId: "ann", TargetUserId: "17"}}},
		{Kind: &skeinv1.Event_BoardFollowed{BoardFollowed: &skeinv1.BoardFollowed{UserId: "ann", Board: newBoard("bob", "art")}}},
		{Kind: &skeinv1.Event_BoardUnfollowed{BoardUnfollowed: &skeinv1.BoardUnfollowed{UserId: "ann", Board: newBoard("bob", "")}}},
		{Kind: &skeinv1.Event_BoardCreated{BoardCreated: &skeinv1.BoardCreated{Board: newBoard("bob", "art"), Title: "Kunst für alle"}}},
		{Kind: &skeinv1.Event_BoardDeleted{BoardDeleted: &skeinv1.BoardDeleted{Board: newBoard("bob", "art")}}},
		{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
			Pin: newPin("bob", "p1"), BoardId: "art",
			ItemId: "film", RepinOf: newPin("cat", "p9"), Attributes: []byte{0, 255},
		}}},
		{Kind: &skeinv1.Event_PinMoved{PinMoved: &skeinv1.PinMoved{Pin: newPin("bob", "p1"), BoardId: "new"}}},
		{Kind: &skeinv1.Event_PinDeleted{PinDeleted: &skeinv1.PinDeleted{Pin: newPin("bob", "p1")}}},
		{Kind: &skeinv1.Event_UserBlocked{UserBlocked: &skeinv1.UserBlocked{UserId: "ann", TargetUserId: "bob"}}},
		{Kind: &skeinv1.Event_UserUnblocked{UserUnblocked: &skeinv1.UserUnblocked{UserId: "ann", TargetUserId: "bob"}}},
		{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{UserId: "ann", TargetUserId: "bob"}}},
		{Kind: &skeinv1.Event_UserUnmuted{UserUnmuted: &skeinv1.UserUnmuted{UserId: "ann", TargetUserId: "bob"}}},
		{Kind: &skeinv1.Event_UserDeleted{UserDeleted: &skeinv1.UserDeleted{UserId: "ann"}}},
		{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: "ann", ItemId: "film"}}},
		{Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: "ann", ItemId: "film"}}},
		{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: "ann", ItemId: "film"}}},
		{Kind: &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: "ann", ItemIds: []string{"film", "日本", "film"}}}},
		{Kind: &skeinv1.Event_SeenCleared{SeenCleared: &skeinv1.SeenCleared{UserId: "ann"}}},
		{Kind: &skeinv1.Event_ItemScored{ItemScored: &skeinv1.ItemScored{ItemId: "film", Score: -3 << 40}}},
		{Kind: &skeinv1.Event_BackfillClosed{BackfillClosed: &skeinv1.BackfillClosed{Source: "old-redis"}}},
		{Kind: &skeinv1.Event_FeedRead{FeedRead: &skeinv1.FeedRead{
			UserId: "ann", ReadTime: timestamppb.New(time.Date(2026, 11, 20, 8, 30, 0, 123_456_000, time.UTC)),
		}}},
		{Kind: &skeinv1.Event_FollowSettingsSet{FollowSettingsSet: &skeinv1.FollowSettingsSet{
			UserId: "ann", TargetUserId: "bob", HideRepins: true, Favorite: true,
		}}},
		{Kind: &skeinv1.Event_ItemHidden{ItemHidden: &skeinv1.ItemHidden{UserId: "ann", ItemId: "film"}}},
		{Kind: &skeinv1.Event_ItemShown{ItemShown: &skeinv1.ItemShown{UserId: "ann", ItemId: "film"}}},
		{Kind: &skeinv1.Event_NotificationsSeen{NotificationsSeen: &skeinv1.NotificationsSeen{
			UserId: "ann", SeenTime: timestamppb.New(time.Date(2026, 11, 20, 8, 30, 0, 123_456_000, time.UTC)),
		}}},
		{Kind: &skeinv1.Event_NotificationsRead{NotificationsRead: &skeinv1.NotificationsRead{
			UserId: "ann", ReadTime: timestamppb.New(time.Date(2026, 11, 20, 8, 30, 0, 0, time.UTC)), GroupId: "r20421:p1",
		}}},
		{Kind: &skeinv1.Event_PinEdited{PinEdited: &skeinv1.PinEdited{Pin: newPin("bob", "p1"), Attributes: []byte{1, 255}}}},
	}
	all := live
	for i, msg := range live {
		msg.EventId = fmt.Sprintf("req-%d", i)
		if KindOf(msg).Backfillable() {
			backfill := asBackfill(msg, uint64(i+1))
			backfill.EventId = fmt.Sprintf("old-%d", i)
			all = append(all, backfill)
		}
	}

	return append(all,
		&skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{Pin: newPin("bob", "p2")}}},
		&skeinv1.Event{Kind: &skeinv1.Event_BackfillClosed{BackfillClosed: &skeinv1.BackfillClosed{}}},
		&skeinv1.Event{Kind: &skeinv1.Event_NotificationsRead{NotificationsRead: &skeinv1.NotificationsRead{
			UserId: "ann", ReadTime: timestamppb.New(time.Date(2026, 11, 20, 8, 30, 0, 0, time.UTC)),
		}}},
		newReaction("ann", "film", "_bookmark", nil), asBackfill(newReaction("ann", "film", "save", newPin("bob", "p1")), 77),
		&skeinv1.Event{Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{
			UserId: "ann", ItemId: "film", Kind: "save", Pin: newPin("bob", "p1"),
		}}},
		&skeinv1.Event{Kind: &skeinv1.Event_ItemScored{ItemScored: &skeinv1.ItemScored{ItemId: "7"}}},
		&skeinv1.Event{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{
			UserId: "ann", TargetUserId: "bob", Until: timestamppb.New(time.Date(2026, 12, 1, 0, 0, 0, 123_456_000, time.UTC)),
		}}},
		&skeinv1.Event{Kind: &skeinv1.Event_FollowSettingsSet{FollowSettingsSet: &skeinv1.FollowSettingsSet{
			UserId: "ann", TargetUserId: "bob", Notify: true,
		}}},
		&skeinv1.Event{Kind: &skeinv1.Event_FollowSettingsSet{FollowSettingsSet: &skeinv1.FollowSettingsSet{UserId: "ann", TargetUserId: "bob"}}},
	)
}

// newBoard returns a reference to a board.
func newBoard(owner, id string) *skeinv1.Board { return &skeinv1.Board{OwnerId: owner, BoardId: id} }

// newReaction returns a reaction on a pin, which may be nil.
func newReaction(user, item, kind string, on *skeinv1.Pin) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: user, ItemId: item, Kind: kind, Pin: on}}}
}

// newPin returns a reference to a pin.
func newPin(owner, id string) *skeinv1.Pin { return &skeinv1.Pin{OwnerId: owner, PinId: id} }

// asBackfill returns a copy of the event as a backfill of 2019.
func asBackfill(msg *skeinv1.Event, offset uint64) *skeinv1.Event {
	msg = proto.CloneOf(msg)
	msg.Source = "old-redis"
	msg.Offset = offset
	msg.OccurredAt = timestamppb.New(time.Date(2019, 5, 17, 8, 30, 0, 123_456_789, time.UTC))
	return msg
}

// TestValidateAcceptsGoodEvents demands that Validate accepts events of every kind, and values at
// the limits.
func TestValidateAcceptsGoodEvents(t *testing.T) {
	x128 := strings.Repeat("x", 128)
	good := newEventsOfEveryKind()
	good = append(good, []*skeinv1.Event{
		{Kind: &skeinv1.Event_PinDeleted{PinDeleted: &skeinv1.PinDeleted{Pin: newPin("bob", "p1"), RepinOf: newPin("cat", "p9")}}},
		{EventId: x128[:64], Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{UserId: x128, TargetUserId: x128[:127]}}},
		{Kind: &skeinv1.Event_BoardCreated{BoardCreated: &skeinv1.BoardCreated{Board: newBoard("b", x128), Title: x128 + x128}}},
		{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{Pin: newPin("b", "p"), Attributes: make([]byte, 256)}}},
		{Kind: &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: "a", ItemIds: strings.Split(strings.Repeat("x", 100), "")}}},
		{Kind: &skeinv1.Event_BackfillClosed{BackfillClosed: &skeinv1.BackfillClosed{Source: x128[:64]}}},
		{
			Source: x128[:64], Offset: 1<<64 - 1, OccurredAt: &timestamppb.Timestamp{},
			Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: "a", ItemId: "i"}},
		},
		{
			Source: "s", Offset: 1, OccurredAt: &timestamppb.Timestamp{Seconds: maxSeconds, Nanos: 999_999_999},
			Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: "a", ItemId: "i"}},
		},
	}...)
	for _, msg := range good {
		if r := Validate(msg); r != nil {
			t.Errorf("Validate(%v): got rejection %v, want none", msg, r)
		}
	}
}

// badEvent is an event and the reason why it is rejected.
type badEvent struct {
	msg    *skeinv1.Event
	reason skeinv1.Reason
	field  string
	limit  string // a part of the message that names the limit
}

// listBadEvents returns events that Validate rejects.
func listBadEvents() []badEvent {
	const (
		invalid  = skeinv1.Reason_REASON_INVALID_FIELD
		self     = skeinv1.Reason_REASON_SELF_RELATION
		unknown  = skeinv1.Reason_REASON_UNKNOWN_KIND
		backfill = skeinv1.Reason_REASON_INVALID_BACKFILL
	)
	long := strings.Repeat("x", 257)
	liked := func(user, item string) *skeinv1.Event {
		return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: user, ItemId: item}}}
	}
	with := func(msg *skeinv1.Event, change func(*skeinv1.Event)) *skeinv1.Event {
		change(msg)
		return msg
	}

	past := func(change func(*skeinv1.Event)) *skeinv1.Event { return with(asBackfill(liked("a", "i"), 1), change) }
	pinned := func(m *skeinv1.PinCreated) *skeinv1.Event {
		return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: m}}
	}
	served := func(items ...string) *skeinv1.Event {
		return &skeinv1.Event{Kind: &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: "a", ItemIds: items}}}
	}
	created := func(b *skeinv1.Board, title string) *skeinv1.Event {
		return &skeinv1.Event{Kind: &skeinv1.Event_BoardCreated{BoardCreated: &skeinv1.BoardCreated{Board: b, Title: title}}}
	}
	return []badEvent{
		{nil, unknown, "kind", "knows"},
		{&skeinv1.Event{}, unknown, "kind", "knows"},
		{liked("", "i"), invalid, "reacted.user_id", "1 to 128 bytes"},
		{liked(long[:129], "i"), invalid, "reacted.user_id", "at most 128"},
		{newReaction("a", "i", "Save", nil), invalid, "reacted.kind", "1 to 32 bytes of a-z, 0-9 and _"},
		{newReaction("a", "i", "a-b", nil), invalid, "reacted.kind", "1 to 32"},
		{newReaction("a", "i", "é", nil), invalid, "reacted.kind", "1 to 32"},
		{newReaction("a", "i", long[:33], nil), invalid, "reacted.kind", "1 to 32"},
		{newReaction("a", "i", "", &skeinv1.Pin{OwnerId: "b"}), invalid, "reacted.pin.pin_id", "1 to 128"},
		{newReaction("a", "i", "", &skeinv1.Pin{PinId: "p"}), invalid, "reacted.pin.owner_id", "1 to 128"},
		{liked("a", ""), invalid, "reacted.item_id", "1 to 128 bytes"},
		{liked("a", "two words"), invalid, "reacted.item_id", "UTF-8 without white space"},
		{liked("a", "\xff"), invalid, "reacted.item_id", "UTF-8 without white space"},
		{&skeinv1.Event{Kind: &skeinv1.Event_Reacted{}}, invalid, "reacted.user_id", "1 to 128"},
		{with(liked("a", "i"), func(e *skeinv1.Event) { e.EventId = long[:65] }), invalid, "event_id", "at most 64"},
		{with(liked("a", "i"), func(e *skeinv1.Event) { e.EventId = "a b" }), invalid, "event_id", "64 bytes"},
		{with(liked("a", "i"), func(e *skeinv1.Event) { e.Offset = 1 }), backfill, "offset", "live"},
		{with(liked("a", "i"), func(e *skeinv1.Event) { e.OccurredAt = &timestamppb.Timestamp{} }), backfill, "occurred_at", "live"},
		{past(func(e *skeinv1.Event) { e.Source = long[:65] }), invalid, "source", "at most 64"},
		{past(func(e *skeinv1.Event) { e.Source = "a\tb" }), invalid, "source", "64 bytes"},
		{past(func(e *skeinv1.Event) { e.Offset = 0 }), backfill, "offset", "at least 1"},
		{past(func(e *skeinv1.Event) { e.OccurredAt = nil }), backfill, "occurred_at", "present"},
		{past(func(e *skeinv1.Event) { e.OccurredAt.Seconds = -1 }), backfill, "occurred_at", "1970"},
		{past(func(e *skeinv1.Event) { e.OccurredAt.Seconds = maxSeconds + 1 }), backfill, "occurred_at", "9999"},
		{past(func(e *skeinv1.Event) { e.OccurredAt.Nanos = 1e9 }), backfill, "occurred_at", "999999999"},
		{past(func(e *skeinv1.Event) { e.OccurredAt.Nanos = -1 }), backfill, "occurred_at", "999999999"},
		{created(nil, ""), invalid, "board_created.board.owner_id", "1 to 128"},
		{created(newBoard("b", ""), ""), invalid, "board_created.board.board_id", "1 to 128"},
		{created(newBoard("b", "x"), long), invalid, "board_created.title", "at most 256 bytes"},
		{created(newBoard("b", "x"), "\xc3"), invalid, "board_created.title", "valid UTF-8"},
		{
			&skeinv1.Event{Kind: &skeinv1.Event_BoardDeleted{BoardDeleted: &skeinv1.BoardDeleted{Board: newBoard("b", "")}}},
			invalid, "board_deleted.board.board_id", "1 to 128",
		},
		{
			&skeinv1.Event{Kind: &skeinv1.Event_BoardFollowed{BoardFollowed: &skeinv1.BoardFollowed{UserId: "a"}}},
			invalid, "board_followed.board.owner_id", "1 to 128",
		},
		{
			&skeinv1.Event{Kind: &skeinv1.Event_BoardUnfollowed{BoardUnfollowed: &skeinv1.BoardUnfollowed{UserId: "a", Board: newBoard("b", "\u00a0")}}},
			invalid, "board_unfollowed.board.board_id", "128",
		},
		{pinned(&skeinv1.PinCreated{}), invalid, "pin_created.pin.owner_id", "1 to 128"},
		{pinned(&skeinv1.PinCreated{Pin: newPin("b", "")}), invalid, "pin_created.pin.pin_id", "1 to 128"},
		{pinned(&skeinv1.PinCreated{Pin: newPin("b", "p"), BoardId: " "}), invalid, "pin_created.board_id", "128"},
		{pinned(&skeinv1.PinCreated{Pin: newPin("b", "p"), ItemId: long[:129]}), invalid, "pin_created.item_id", "at most 128"},
		{pinned(&skeinv1.PinCreated{Pin: newPin("b", "p"), RepinOf: newPin("", "")}), invalid, "pin_created.repin_of.owner_id", "1 to 128"},
		{pinned(&skeinv1.PinCreated{Pin: newPin("b", "p"), RepinOf: newPin("c", "")}), invalid, "pin_created.repin_of.pin_id", "1 to 128"},
		{pinned(&skeinv1.PinCreated{Pin: newPin("b", "p"), Attributes: []byte(long)}), invalid, "pin_created.attributes", "at most 256"},
		{
			&skeinv1.Event{Kind: &skeinv1.Event_PinMoved{PinMoved: &skeinv1.PinMoved{Pin: newPin("b", "p"), BoardId: "\x00"}}},
			invalid, "pin_moved.board_id", "128",
		},
		{&skeinv1.Event{Kind: &skeinv1.Event_PinDeleted{PinDeleted: &skeinv1.PinDeleted{}}}, invalid, "pin_deleted.pin.owner_id", "1 to 128"},
		{
			&skeinv1.Event{Kind: &skeinv1.Event_PinEdited{PinEdited: &skeinv1.PinEdited{Pin: newPin("b", "p"), Attributes: []byte(long)}}},
			invalid, "pin_edited.attributes", "at most 256",
		},
		{served(), invalid, "served.item_ids", "1 to 100"},
		{served(strings.Split(long[:101], "")...), invalid, "served.item_ids", "1 to 100"},
		{served("i", ""), invalid, "served.item_ids[1]", "1 to 128"},
		{&skeinv1.Event{Kind: &skeinv1.Event_ItemScored{ItemScored: &skeinv1.ItemScored{}}}, invalid, "item_scored.item_id", "1 to 128"},
		{
			&skeinv1.Event{Kind: &skeinv1.Event_BackfillClosed{BackfillClosed: &skeinv1.BackfillClosed{Source: long[:65]}}},
			invalid, "backfill_closed.source", "at most 64",
		},
		{&skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{UserId: "a", TargetUserId: "a"}}}, self, "user_followed.target_user_id", "acting user"},
		{&skeinv1.Event{Kind: &skeinv1.Event_UserUnfollowed{UserUnfollowed: &skeinv1.UserUnfollowed{UserId: "a", TargetUserId: "a"}}}, self, "user_unfollowed.target_user_id", "acting user"},
		{&skeinv1.Event{Kind: &skeinv1.Event_BoardFollowed{BoardFollowed: &skeinv1.BoardFollowed{UserId: "a", Board: newBoard("a", "x")}}}, self, "board_followed.board.owner_id", "acting user"},
		{&skeinv1.Event{Kind: &skeinv1.Event_BoardUnfollowed{BoardUnfollowed: &skeinv1.BoardUnfollowed{UserId: "a", Board: newBoard("a", "")}}}, self, "board_unfollowed.board.owner_id", "acting user"},
		{&skeinv1.Event{Kind: &skeinv1.Event_UserBlocked{UserBlocked: &skeinv1.UserBlocked{UserId: "a", TargetUserId: "a"}}}, self, "user_blocked.target_user_id", "acting user"},
		{&skeinv1.Event{Kind: &skeinv1.Event_UserUnblocked{UserUnblocked: &skeinv1.UserUnblocked{UserId: "a", TargetUserId: "a"}}}, self, "user_unblocked.target_user_id", "acting user"},
		{&skeinv1.Event{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{UserId: "a", TargetUserId: "a"}}}, self, "user_muted.target_user_id", "acting user"},
		{&skeinv1.Event{Kind: &skeinv1.Event_UserUnmuted{UserUnmuted: &skeinv1.UserUnmuted{UserId: "a", TargetUserId: "a"}}}, self, "user_unmuted.target_user_id", "acting user"},
		{&skeinv1.Event{Kind: &skeinv1.Event_FeedRead{FeedRead: &skeinv1.FeedRead{UserId: "a"}}}, invalid, "feed_read.read_time", "1970"},
		{&skeinv1.Event{Kind: &skeinv1.Event_FeedRead{FeedRead: &skeinv1.FeedRead{
			UserId: "a", ReadTime: &timestamppb.Timestamp{Seconds: -1},
		}}}, invalid, "feed_read.read_time", "1970"},
		{&skeinv1.Event{Kind: &skeinv1.Event_FollowSettingsSet{
			FollowSettingsSet: &skeinv1.FollowSettingsSet{UserId: "a", TargetUserId: "a"},
		}}, self, "follow_settings_set.target_user_id", "acting user"},
		{&skeinv1.Event{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{
			UserId: "a", TargetUserId: "b", Until: &timestamppb.Timestamp{Seconds: 1 << 40},
		}}}, invalid, "user_muted.until", "1970 to 9999"},
		{&skeinv1.Event{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{
			UserId: "a", TargetUserId: "b", Until: &timestamppb.Timestamp{Nanos: 999},
		}}}, invalid, "user_muted.until", "later than 1970-01-01T00:00:00Z"},
	}
}

// TestValidateRejectsBadEvents demands that Validate rejects bad events with a reason, a field and
// a message that names the limit, and that FromProto rejects them the same way.
func TestValidateRejectsBadEvents(t *testing.T) {
	bad := listBadEvents()
	for _, msg := range newEventsOfEveryKind() {
		if msg.Source == "" && !KindOf(msg).Backfillable() {
			bad = append(bad, badEvent{asBackfill(msg, 1), skeinv1.Reason_REASON_INVALID_BACKFILL, "source", "cannot be backfilled"})
		}
	}

	for _, test := range bad {
		rejection := Validate(test.msg)
		if rejection == nil {
			t.Errorf("Validate(%v): got no rejection, want one of %s", test.msg, test.field)
			continue
		}
		if rejection.Reason != test.reason || rejection.Field != test.field || rejection.Index != 0 {
			t.Errorf("Validate(%v): got %v of %q at index %d, want %v of %q at 0",
				test.msg, rejection.Reason, rejection.Field, rejection.Index, test.reason, test.field)
		}
		if !strings.HasPrefix(rejection.Message, test.field+" ") || !strings.Contains(rejection.Message, test.limit) {
			t.Errorf("Validate(%v): got message %q, want one that begins with %q and names %q",
				test.msg, rejection.Message, test.field, test.limit)
		}
		if rejection.Error() != rejection.Message {
			t.Errorf("Validate(%v): got error text %q, want the message %q", test.msg, rejection.Error(), rejection.Message)
		}
		if ev, got := FromProto(test.msg); got == nil || *got != *rejection || ev.Kind != 0 {
			t.Errorf("FromProto(%v): got %v and rejection %v, want only rejection %v", test.msg, ev, got, rejection)
		}
	}
}
