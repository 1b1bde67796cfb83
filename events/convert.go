package events

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// FromProto checks a message with [Validate] and returns its flat form, without sequence and slot. Time is the
// occurred_at of a backfill, not yet held against the log's, and 0 for a live event. Items and attributes are
// shared with the message.
func FromProto(msg *skeinv1.Event) (Event, *Rejection) {
	ev, wire := flatten(msg)
	if r := check(&ev, &wire); r != nil {
		return Event{}, r
	}
	return ev.whole(&wire), nil
}

// FromLog is [FromProto] for an event that the log holds, as a change feed gives it. It is not checked: what is left there of
// an erased user could not be published. It returns false if the message is of an unknown kind.
func FromLog(msg *skeinv1.Event) (Event, bool) {
	ev, wire := flatten(msg)
	return ev.whole(&wire), ev.Kind != 0
}

func (ev Event) whole(wire *unflat) Event {
	if ev.Backfill {
		ev.Time = microsOf(wire.occurred.GetSeconds(), wire.occurred.GetNanos())
	}
	if ev.Kind == FeedRead {
		ev.Read = microsOf(wire.read.GetSeconds(), wire.read.GetNanos())
	}
	ev.complete()
	return ev
}

// complete fills in what follows from the other fields.
func (ev *Event) complete() {
	if ev.Kind == PinCreated && ev.Item == "" {
		ev.Item = ev.Pin
	}
	if ev.Backfill && (ev.Kind == BoardCreated || ev.Kind == PinCreated) {
		ev.Encoded = ev.Canonical()
	}
}

// Canonical returns what Encoded is of a backfill: the canonical encoding of a BoardCreated or PinCreated.
func (ev *Event) Canonical() []byte { return appendContent(nil, ev) }

// flatten copies the fields of a message, good or bad, without filling in anything.
func flatten(msg *skeinv1.Event) (ev Event, wire unflat) {
	ev.ID = msg.GetEventId()
	ev.Source, ev.Offset, ev.Backfill = msg.GetSource(), msg.GetOffset(), msg.GetSource() != ""
	wire.occurred = msg.GetOccurredAt()
	if flattenRelation(msg, &ev) || flattenItem(msg, &ev) {
		return ev, wire
	}
	switch k := msg.GetKind().(type) {
	case *skeinv1.Event_BoardCreated:
		ev.Kind, ev.Title = BoardCreated, k.BoardCreated.GetTitle()
		ev.User, ev.Board = boardIDs(k.BoardCreated.GetBoard())
	case *skeinv1.Event_BoardDeleted:
		ev.Kind = BoardDeleted
		ev.User, ev.Board = boardIDs(k.BoardDeleted.GetBoard())
	case *skeinv1.Event_PinCreated:
		m := k.PinCreated
		ev.Kind, ev.Board, ev.Item = PinCreated, m.GetBoardId(), m.GetItemId()
		ev.User, ev.Pin = pinIDs(m.GetPin())
		ev.RepinUser, ev.RepinPin = pinIDs(m.GetRepinOf())
		wire.repin = m.GetRepinOf() != nil
		if len(m.GetAttributes()) > 0 {
			ev.Attributes = m.GetAttributes()
		}
	case *skeinv1.Event_PinMoved:
		ev.Kind, ev.Board = PinMoved, k.PinMoved.GetBoardId()
		ev.User, ev.Pin = pinIDs(k.PinMoved.GetPin())
	case *skeinv1.Event_PinDeleted:
		ev.Kind = PinDeleted
		ev.User, ev.Pin = pinIDs(k.PinDeleted.GetPin())
	case *skeinv1.Event_FeedRead:
		ev.Kind, ev.User, wire.read = FeedRead, k.FeedRead.GetUserId(), k.FeedRead.GetReadTime()
	case *skeinv1.Event_BackfillClosed:
		ev.Kind = BackfillClosed
		// The source that ends takes the place of the event's own, which must be empty: this kind is live only,
		// and Backfill still tells check so.
		if !ev.Backfill {
			ev.Source = k.BackfillClosed.GetSource()
		}
	}
	return ev, wire
}

func flattenRelation(msg *skeinv1.Event, ev *Event) bool {
	switch k := msg.GetKind().(type) {
	case *skeinv1.Event_UserFollowed:
		ev.Kind, ev.User, ev.Peer = UserFollowed, k.UserFollowed.GetUserId(), k.UserFollowed.GetTargetUserId()
	case *skeinv1.Event_UserUnfollowed:
		ev.Kind, ev.User, ev.Peer = UserUnfollowed, k.UserUnfollowed.GetUserId(), k.UserUnfollowed.GetTargetUserId()
	case *skeinv1.Event_BoardFollowed:
		ev.Kind, ev.User = BoardFollowed, k.BoardFollowed.GetUserId()
		ev.Peer, ev.Board = boardIDs(k.BoardFollowed.GetBoard())
	case *skeinv1.Event_BoardUnfollowed:
		ev.Kind, ev.User = BoardUnfollowed, k.BoardUnfollowed.GetUserId()
		ev.Peer, ev.Board = boardIDs(k.BoardUnfollowed.GetBoard())
	case *skeinv1.Event_UserBlocked:
		ev.Kind, ev.User, ev.Peer = UserBlocked, k.UserBlocked.GetUserId(), k.UserBlocked.GetTargetUserId()
	case *skeinv1.Event_UserUnblocked:
		ev.Kind, ev.User, ev.Peer = UserUnblocked, k.UserUnblocked.GetUserId(), k.UserUnblocked.GetTargetUserId()
	case *skeinv1.Event_UserMuted:
		ev.Kind, ev.User, ev.Peer = UserMuted, k.UserMuted.GetUserId(), k.UserMuted.GetTargetUserId()
	case *skeinv1.Event_UserUnmuted:
		ev.Kind, ev.User, ev.Peer = UserUnmuted, k.UserUnmuted.GetUserId(), k.UserUnmuted.GetTargetUserId()
	case *skeinv1.Event_RepinsHidden:
		ev.Kind, ev.User, ev.Peer = RepinsHidden, k.RepinsHidden.GetUserId(), k.RepinsHidden.GetTargetUserId()
	case *skeinv1.Event_RepinsShown:
		ev.Kind, ev.User, ev.Peer = RepinsShown, k.RepinsShown.GetUserId(), k.RepinsShown.GetTargetUserId()
	default:
		return false
	}
	return true
}

func flattenItem(msg *skeinv1.Event, ev *Event) bool {
	switch k := msg.GetKind().(type) {
	case *skeinv1.Event_UserDeleted:
		ev.Kind, ev.User = UserDeleted, k.UserDeleted.GetUserId()
	case *skeinv1.Event_Liked:
		ev.Kind, ev.User, ev.Item = Liked, k.Liked.GetUserId(), k.Liked.GetItemId()
	case *skeinv1.Event_Unliked:
		ev.Kind, ev.User, ev.Item = Unliked, k.Unliked.GetUserId(), k.Unliked.GetItemId()
	case *skeinv1.Event_Played:
		ev.Kind, ev.User, ev.Item = Played, k.Played.GetUserId(), k.Played.GetItemId()
	case *skeinv1.Event_Served:
		ev.Kind, ev.User, ev.Items = Served, k.Served.GetUserId(), k.Served.GetItemIds()
	case *skeinv1.Event_SeenCleared:
		ev.Kind, ev.User = SeenCleared, k.SeenCleared.GetUserId()
	case *skeinv1.Event_ItemScored:
		ev.Kind, ev.Item, ev.Score = ItemScored, k.ItemScored.GetItemId(), k.ItemScored.GetScore()
	default:
		return false
	}
	return true
}

func boardIDs(b *skeinv1.Board) (owner, board string) { return b.GetOwnerId(), b.GetBoardId() }

func pinIDs(p *skeinv1.Pin) (owner, pin string) { return p.GetOwnerId(), p.GetPinId() }

// Proto returns the message that [FromProto] flattens to ev, but for sequence, slot and the time of a live event,
// which a message has no fields for. An item_id that repeats the pin id is left out.
func (ev Event) Proto() *skeinv1.Event {
	msg := &skeinv1.Event{EventId: ev.ID}
	if ev.Backfill {
		msg.Source, msg.Offset = ev.Source, ev.Offset
		msg.OccurredAt = timestamppb.New(ev.Time.Time())
	}
	if ev.putRelation(msg) || ev.putItem(msg) {
		return msg
	}
	board := &skeinv1.Board{OwnerId: ev.User, BoardId: ev.Board}
	pin := &skeinv1.Pin{OwnerId: ev.User, PinId: ev.Pin}
	switch ev.Kind {
	case BoardCreated:
		msg.Kind = &skeinv1.Event_BoardCreated{BoardCreated: &skeinv1.BoardCreated{Board: board, Title: ev.Title}}
	case BoardDeleted:
		msg.Kind = &skeinv1.Event_BoardDeleted{BoardDeleted: &skeinv1.BoardDeleted{Board: board}}
	case PinCreated:
		m := &skeinv1.PinCreated{Pin: pin, BoardId: ev.Board, ItemId: ev.namedItem(), Attributes: ev.Attributes}
		if ev.RepinUser != "" {
			m.RepinOf = &skeinv1.Pin{OwnerId: ev.RepinUser, PinId: ev.RepinPin}
		}
		msg.Kind = &skeinv1.Event_PinCreated{PinCreated: m}
	case PinMoved:
		msg.Kind = &skeinv1.Event_PinMoved{PinMoved: &skeinv1.PinMoved{Pin: pin, BoardId: ev.Board}}
	case PinDeleted:
		msg.Kind = &skeinv1.Event_PinDeleted{PinDeleted: &skeinv1.PinDeleted{Pin: pin}}
	case BackfillClosed:
		msg.Kind = &skeinv1.Event_BackfillClosed{BackfillClosed: &skeinv1.BackfillClosed{Source: ev.Source}}
	}
	return msg
}

// putRelation sets the kind of an event between two users.
func (ev *Event) putRelation(msg *skeinv1.Event) bool {
	user, peer := ev.User, ev.Peer
	board := &skeinv1.Board{OwnerId: peer, BoardId: ev.Board}
	switch ev.Kind {
	case UserFollowed:
		msg.Kind = &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{UserId: user, TargetUserId: peer}}
	case UserUnfollowed:
		msg.Kind = &skeinv1.Event_UserUnfollowed{
			UserUnfollowed: &skeinv1.UserUnfollowed{UserId: user, TargetUserId: peer},
		}
	case BoardFollowed:
		msg.Kind = &skeinv1.Event_BoardFollowed{BoardFollowed: &skeinv1.BoardFollowed{UserId: user, Board: board}}
	case BoardUnfollowed:
		msg.Kind = &skeinv1.Event_BoardUnfollowed{
			BoardUnfollowed: &skeinv1.BoardUnfollowed{UserId: user, Board: board},
		}
	case UserBlocked:
		msg.Kind = &skeinv1.Event_UserBlocked{UserBlocked: &skeinv1.UserBlocked{UserId: user, TargetUserId: peer}}
	case UserUnblocked:
		msg.Kind = &skeinv1.Event_UserUnblocked{UserUnblocked: &skeinv1.UserUnblocked{UserId: user, TargetUserId: peer}}
	case UserMuted:
		msg.Kind = &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{UserId: user, TargetUserId: peer}}
	case UserUnmuted:
		msg.Kind = &skeinv1.Event_UserUnmuted{UserUnmuted: &skeinv1.UserUnmuted{UserId: user, TargetUserId: peer}}
	case RepinsHidden:
		msg.Kind = &skeinv1.Event_RepinsHidden{RepinsHidden: &skeinv1.RepinsHidden{UserId: user, TargetUserId: peer}}
	case RepinsShown:
		msg.Kind = &skeinv1.Event_RepinsShown{RepinsShown: &skeinv1.RepinsShown{UserId: user, TargetUserId: peer}}
	default:
		return false
	}
	return true
}

// putItem sets the kind of an event about a user alone, or about items.
func (ev *Event) putItem(msg *skeinv1.Event) bool {
	switch ev.Kind {
	case UserDeleted:
		msg.Kind = &skeinv1.Event_UserDeleted{UserDeleted: &skeinv1.UserDeleted{UserId: ev.User}}
	case Liked:
		msg.Kind = &skeinv1.Event_Liked{Liked: &skeinv1.Liked{UserId: ev.User, ItemId: ev.Item}}
	case Unliked:
		msg.Kind = &skeinv1.Event_Unliked{Unliked: &skeinv1.Unliked{UserId: ev.User, ItemId: ev.Item}}
	case Played:
		msg.Kind = &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: ev.User, ItemId: ev.Item}}
	case Served:
		msg.Kind = &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: ev.User, ItemIds: ev.Items}}
	case FeedRead:
		msg.Kind = &skeinv1.Event_FeedRead{FeedRead: &skeinv1.FeedRead{UserId: ev.User, ReadTime: timestamppb.New(ev.Read.Time())}}
	case SeenCleared:
		msg.Kind = &skeinv1.Event_SeenCleared{SeenCleared: &skeinv1.SeenCleared{UserId: ev.User}}
	case ItemScored:
		msg.Kind = &skeinv1.Event_ItemScored{ItemScored: &skeinv1.ItemScored{ItemId: ev.Item, Score: ev.Score}}
	default:
		return false
	}
	return true
}

// namedItem is the item_id of a pin's message: empty for an item with the pin's id.
func (ev *Event) namedItem() string {
	if ev.Item == ev.Pin {
		return ""
	}
	return ev.Item
}

// appendContent appends the canonical encoding of a BoardCreated or PinCreated message: the fields that are not
// empty, by number, and nothing unknown. It is what every protobuf library writes, but depends on the flat event
// alone, however its producer spelled it. The owner of a pin that is re-pinned is left out: nothing depends on it, and a
// fold that compares by it would have to keep the id of a user in a row that is not about them.
func appendContent(b []byte, ev *Event) []byte {
	if ev.Kind == BoardCreated {
		b = appendPair(b, 1, ev.User, ev.Board)
		return appendText(b, 2, ev.Title)
	}
	b = appendPair(b, 1, ev.User, ev.Pin)
	b = appendText(b, 2, ev.Board)
	b = appendText(b, 3, ev.namedItem())
	if ev.RepinPin != "" {
		b = appendPair(b, 4, "", ev.RepinPin)
	}
	return appendText(b, 5, string(ev.Attributes))
}

// appendPair appends a Board or Pin.
func appendPair(b []byte, num protowire.Number, owner, id string) []byte {
	pair := appendText(appendText(nil, 1, owner), 2, id)
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), pair)
}

func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}
