package workload

import (
	"iter"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// PlaySkew is the exponent of the power law of plays over items.
const PlaySkew = 0.5

// Followed returns the content of the event that makes an edge. The function id gives users their
// ids.
func Followed(e Edge, id func(uint32) string) *skeinv1.Event_UserFollowed {
	return &skeinv1.Event_UserFollowed{
		UserFollowed: &skeinv1.UserFollowed{UserId: id(e.Follower), TargetUserId: id(e.Followee)},
	}
}

// UserFollowed returns the event that a follower starts to follow a user.
func UserFollowed(follower uint32, user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{
		UserFollowed: &skeinv1.UserFollowed{UserId: UserID(follower), TargetUserId: user},
	}}
}

// UserUnfollowed returns the event that a follower stops following a user.
func UserUnfollowed(follower uint32, user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserUnfollowed{
		UserUnfollowed: &skeinv1.UserUnfollowed{UserId: UserID(follower), TargetUserId: user},
	}}
}

// PinCreated returns the event that an owner creates a pin on the default board.
func PinCreated(owner, id string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{
		PinCreated: &skeinv1.PinCreated{Pin: &skeinv1.Pin{OwnerId: owner, PinId: id}},
	}}
}

// FollowEvents returns the events that make the follows of the graph, oldest first. They are live
// events: the log gives them their times.
func (g *Graph) FollowEvents() iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for _, e := range g.Edges {
			if !yield(&skeinv1.Event{Kind: Followed(e, UserID)}) {
				return
			}
		}
	}
}
