package gatewaytest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// How many users, items, boards per user and pins per user there are. There are few, so that many
// events and questions are about the same ones.
const users, items, boards, pins = 14, 40, 3, 30

// randomChoices draws ids and other values at random. The ids of users and items begin with prefix,
// so that those of several histories do not meet.
type randomChoices struct {
	*rand.Rand
	prefix string
}

func (r randomChoices) user() string    { return fmt.Sprintf("%su%d", r.prefix, r.IntN(users)) }
func (r randomChoices) item() string    { return fmt.Sprintf("%si%d", r.prefix, r.IntN(items)) }
func (r randomChoices) bool() bool      { return r.IntN(2) == 0 }
func (r randomChoices) pageSize() int32 { return int32(1 + r.IntN(9)) }

// reactionKind draws the kind of a reaction. One of the kinds is private.
func (r randomChoices) reactionKind() string {
	return [...]string{"", "like", "save", "_bookmark"}[r.IntN(4)]
}

func (r randomChoices) board(owner string) *skeinv1.Board {
	return &skeinv1.Board{OwnerId: owner, BoardId: fmt.Sprintf("b%d", r.IntN(boards))}
}

func (r randomChoices) pin(owner string) *skeinv1.Pin {
	return &skeinv1.Pin{OwnerId: owner, PinId: fmt.Sprintf("p%d", r.IntN(pins))}
}

// Events returns n random events of many kinds, about few users.
func Events(rng *rand.Rand, n int) (evs []*skeinv1.Event) { return EventsOf(rng, "", n) }

// EventsOf is Events about users and items whose names begin with prefix.
func EventsOf(rng *rand.Rand, prefix string, n int) (evs []*skeinv1.Event) {
	r := randomChoices{rng, prefix}
	for len(evs) < n {
		a, b := r.user(), r.user()
		switch k := r.IntN(22); {
		case k < 8 && a != b:
			evs = append(evs, r.relationEvent(k, a, b))
		case k >= 8 && k < 20:
			evs = append(evs, r.userEvent(k, a))
		case k == 20 && r.IntN(40) == 0:
			evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_UserDeleted{UserDeleted: &skeinv1.UserDeleted{UserId: a}}})
		case k == 21 && r.bool():
			evs = append(evs, r.notificationMarker(a))
		case k == 21:
			at := timestamppb.New(time.Unix(r.Int64N(2e9), 0))
			evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_FeedRead{FeedRead: &skeinv1.FeedRead{UserId: a, ReadTime: at}}})
		}
	}
	return evs
}

// notificationMarker is an event that moves a marker of notifications.
func (r randomChoices) notificationMarker(a string) *skeinv1.Event {
	at := timestamppb.New(time.Unix(r.Int64N(2e9), 0))
	if r.bool() {
		return &skeinv1.Event{Kind: &skeinv1.Event_NotificationsSeen{NotificationsSeen: &skeinv1.NotificationsSeen{UserId: a, SeenTime: at}}}
	}
	return &skeinv1.Event{Kind: &skeinv1.Event_NotificationsRead{NotificationsRead: &skeinv1.NotificationsRead{
		UserId: a, ReadTime: at, GroupId: []string{"", fmt.Sprintf("r%d:p0", r.IntN(3))}[r.IntN(2)],
	}}}
}

// relationEvent returns an event of the user a about the user b. k chooses the kind.
func (r randomChoices) relationEvent(k int, a, b string) *skeinv1.Event {
	ev := &skeinv1.Event{}
	switch k {
	case 5, 6:
		ev.Kind = &skeinv1.Event_BoardFollowed{BoardFollowed: &skeinv1.BoardFollowed{UserId: a, Board: r.board(b)}}
		return ev
	case 7:
		ev.Kind = &skeinv1.Event_BoardUnfollowed{BoardUnfollowed: &skeinv1.BoardUnfollowed{UserId: a, Board: r.board(b)}}
		return ev
	}
	switch r.IntN(10) {
	case 0:
		ev.Kind = &skeinv1.Event_UserUnfollowed{UserUnfollowed: &skeinv1.UserUnfollowed{UserId: a, TargetUserId: b}}
	case 1:
		ev.Kind = &skeinv1.Event_UserBlocked{UserBlocked: &skeinv1.UserBlocked{UserId: a, TargetUserId: b}}
	case 2:
		ev.Kind = &skeinv1.Event_UserUnblocked{UserUnblocked: &skeinv1.UserUnblocked{UserId: a, TargetUserId: b}}
	case 3:
		// Mutes that end by themselves end either long before or long after the test, so that its
		// time makes no difference.
		ends := []*timestamppb.Timestamp{nil, nil, {Seconds: 1}, {Seconds: 250_000_000_000}}
		ev.Kind = &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{UserId: a, TargetUserId: b, Until: ends[r.IntN(len(ends))]}}
	case 4, 5:
		ev.Kind = &skeinv1.Event_FollowSettingsSet{FollowSettingsSet: &skeinv1.FollowSettingsSet{
			UserId: a, TargetUserId: b, HideRepins: r.bool(), Notify: r.bool(), Favorite: r.bool(),
		}}
	default:
		ev.Kind = &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{UserId: a, TargetUserId: b}}
	}
	return ev
}

// userEvent returns an event of one user. k chooses the kind.
func (r randomChoices) userEvent(k int, a string) *skeinv1.Event {
	ev := &skeinv1.Event{}
	switch board := r.board(a); k {
	case 8, 9, 10, 11:
		created := &skeinv1.PinCreated{Pin: r.pin(a), BoardId: board.GetBoardId(), ItemId: r.item()}
		if r.IntN(3) == 0 {
			created.RepinOf = r.pin(r.user())
		}
		ev.Kind = &skeinv1.Event_PinCreated{PinCreated: created}
	case 12:
		ev.Kind = &skeinv1.Event_PinMoved{PinMoved: &skeinv1.PinMoved{Pin: r.pin(a), BoardId: board.GetBoardId()}}
	case 13:
		if r.bool() {
			ev.Kind = &skeinv1.Event_PinEdited{PinEdited: &skeinv1.PinEdited{Pin: r.pin(a), Attributes: []byte(r.item())}}
			return ev
		}
		deleted := &skeinv1.PinDeleted{Pin: r.pin(a)}
		if r.bool() {
			deleted.RepinOf = r.pin(r.user())
		}
		ev.Kind = &skeinv1.Event_PinDeleted{PinDeleted: deleted}
	case 14, 15:
		ev.Kind = &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: a, ItemId: r.item(), Kind: r.reactionKind(), Pin: r.pin(r.user())}}
	case 16:
		switch r.IntN(4) {
		case 0:
			ev.Kind = &skeinv1.Event_ItemHidden{ItemHidden: &skeinv1.ItemHidden{UserId: a, ItemId: r.item()}}
			return ev
		case 1:
			ev.Kind = &skeinv1.Event_ItemShown{ItemShown: &skeinv1.ItemShown{UserId: a, ItemId: r.item()}}
			return ev
		}
		ev.Kind = &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: a, ItemId: r.item()}}
	case 17:
		ev.Kind = &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: a, ItemIds: []string{r.item(), "other-" + r.item()}}}
	case 18:
		ev.Kind = &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: a, ItemId: r.item(), Kind: r.reactionKind(), Pin: r.pin(r.user())}}
	default:
		ev.Kind = &skeinv1.Event_BoardCreated{BoardCreated: &skeinv1.BoardCreated{Board: board, Title: "title"}}
		if r.IntN(8) == 0 {
			ev.Kind = &skeinv1.Event_BoardDeleted{BoardDeleted: &skeinv1.BoardDeleted{Board: board}}
		}
	}
	return ev
}
