package main

import (
	"cmp"
	"fmt"
	"slices"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// expectedState computes what the service should answer from the events of one writer. It is
// written from the documentation of the API alone, and shares no code with skein. No other writer
// publishes about the same users, so the order of the events is known. Keys of two ids are a user
// and what the user acts on.
type expectedState struct {
	// eventCount counts the events. It is used as the time of an event.
	eventCount int
	// followedAt has, for a follower and a followee, when the follow began.
	followedAt map[[2]string]int
	// blocks has the users of whom the first blocks the second.
	blocks map[[2]string]bool
	// unblocked has the pairs whose latest event about a block is an unblock. The first unblock of
	// a pair may end a block that is imported later.
	unblocked map[[2]string]bool
	// renewableFollows has the pairs of users between whom such a first unblock came after the
	// latest follow. A repeat of the follow is then the newer one.
	renewableFollows map[[2]string]bool
	// mutes has the users of whom the first mutes the second.
	mutes map[[2]string]bool
	// boards has the owners and boards, without default boards.
	boards map[[2]string]bool
	// pins has the pins of each owner that are not deleted, oldest first.
	pins map[string][]*skeinv1.PinCreated
	// pinnedAt has when a pin was created, by its id. Ids are not used twice.
	pinnedAt map[string]int
	// likes and plays have users and items.
	likes map[[2]string]bool
	plays map[[2]string]int
	// served has the items that were served to each user, the latest first.
	served map[string][]string
}

func newExpectedState() *expectedState {
	return &expectedState{
		followedAt:       map[[2]string]int{},
		blocks:           map[[2]string]bool{},
		unblocked:        map[[2]string]bool{},
		renewableFollows: map[[2]string]bool{},
		mutes:            map[[2]string]bool{},
		boards:           map[[2]string]bool{},
		pins:             map[string][]*skeinv1.PinCreated{},
		pinnedAt:         map[string]int{},
		likes:            map[[2]string]bool{},
		plays:            map[[2]string]int{},
		served:           map[string][]string{},
	}
}

// apply adds an event to the state. It panics for a kind of event that no writer publishes.
func (s *expectedState) apply(ev *skeinv1.Event) {
	s.eventCount++
	switch k := ev.GetKind().(type) {
	case *skeinv1.Event_UserFollowed:
		follow := [2]string{k.UserFollowed.GetUserId(), k.UserFollowed.GetTargetUserId()}
		reverse := [2]string{follow[1], follow[0]}

		// A block in either direction prevents the follow. A repeat keeps the time of the first
		// follow, unless an unblock has made the follow renewable.
		_, isFollowing := s.followedAt[follow]
		isRepeat := isFollowing && !s.renewableFollows[follow]
		if !isRepeat && !s.blocks[follow] && !s.blocks[reverse] {
			s.followedAt[follow] = s.eventCount
			delete(s.renewableFollows, follow)
		}

	case *skeinv1.Event_UserUnfollowed:
		delete(s.followedAt, [2]string{k.UserUnfollowed.GetUserId(), k.UserUnfollowed.GetTargetUserId()})

	case *skeinv1.Event_UserBlocked:
		block := [2]string{k.UserBlocked.GetUserId(), k.UserBlocked.GetTargetUserId()}
		reverse := [2]string{block[1], block[0]}
		s.blocks[block] = true
		delete(s.unblocked, block)

		// A block ends the follows in both directions.
		delete(s.followedAt, block)
		delete(s.followedAt, reverse)

	case *skeinv1.Event_UserUnblocked:
		block := [2]string{k.UserUnblocked.GetUserId(), k.UserUnblocked.GetTargetUserId()}
		reverse := [2]string{block[1], block[0]}

		// An unblock that ends nothing makes the next follow the newer one, because the block that
		// it ended may still be imported. An unblock that repeats another one does not.
		if !s.blocks[block] && !s.unblocked[block] {
			s.renewableFollows[block] = true
			s.renewableFollows[reverse] = true
		}
		s.unblocked[block] = true
		delete(s.blocks, block)

	case *skeinv1.Event_UserMuted:
		s.mutes[[2]string{k.UserMuted.GetUserId(), k.UserMuted.GetTargetUserId()}] = true

	case *skeinv1.Event_UserUnmuted:
		delete(s.mutes, [2]string{k.UserUnmuted.GetUserId(), k.UserUnmuted.GetTargetUserId()})

	case *skeinv1.Event_PinCreated:
		owner := k.PinCreated.GetPin().GetOwnerId()
		s.pins[owner] = append(s.pins[owner], k.PinCreated)
		s.pinnedAt[k.PinCreated.GetPin().GetPinId()] = s.eventCount

		// The first pin on a board creates the board, which stays when its pins are deleted.
		if board := k.PinCreated.GetBoardId(); board != "" {
			s.boards[[2]string{owner, board}] = true
		}

	case *skeinv1.Event_PinDeleted:
		owner := k.PinDeleted.GetPin().GetOwnerId()
		s.pins[owner] = slices.DeleteFunc(s.pins[owner], func(p *skeinv1.PinCreated) bool {
			return p.GetPin().GetPinId() == k.PinDeleted.GetPin().GetPinId()
		})

	case *skeinv1.Event_Reacted:
		s.likes[[2]string{k.Reacted.GetUserId(), k.Reacted.GetItemId()}] = true

	case *skeinv1.Event_Unreacted:
		delete(s.likes, [2]string{k.Unreacted.GetUserId(), k.Unreacted.GetItemId()})

	case *skeinv1.Event_Played:
		s.plays[[2]string{k.Played.GetUserId(), k.Played.GetItemId()}]++

	case *skeinv1.Event_Served:
		// The served items come before all others, and none is listed twice.
		user := k.Served.GetUserId()
		items := k.Served.GetItemIds()
		earlier := slices.DeleteFunc(s.served[user], func(item string) bool { return slices.Contains(items, item) })
		s.served[user] = append(slices.Clone(items), earlier...)

	default:
		panic(fmt.Sprintf("expectedState.apply: got an event of the kind %T, want one that writers publish", k))
	}
}

// otherEnds returns the users at the other end of the follows of a user, newest first: the
// followees for end 0, and the followers for end 1.
func (s *expectedState) otherEnds(user string, end int) []string {
	var others []string
	followedAt := map[string]int{}
	for pair, at := range s.followedAt {
		if pair[end] == user {
			other := pair[1-end]
			others = append(others, other)
			followedAt[other] = at
		}
	}
	slices.SortFunc(others, func(a, b string) int { return cmp.Compare(followedAt[b], followedAt[a]) })
	return others
}

func (s *expectedState) following(user string) []string { return s.otherEnds(user, 0) }
func (s *expectedState) followers(user string) []string { return s.otherEnds(user, 1) }

// pinText returns how a pin is compared in a list: owner, board, pin and item.
func pinText(p *skeinv1.PinCreated) string {
	return p.GetPin().GetOwnerId() + "/" + p.GetBoardId() + "/" + p.GetPin().GetPinId() + "=" + p.GetItemId()
}

// pinsOf returns the pins of a user that are not deleted, newest first.
func (s *expectedState) pinsOf(owner string) []string {
	var texts []string
	for _, p := range slices.Backward(s.pins[owner]) {
		texts = append(texts, pinText(p))
	}
	return texts
}

// feed returns the home feed of a reader, newest first: the pins of the users whom the reader
// follows and does not mute.
func (s *expectedState) feed(reader string) []string {
	var pins []*skeinv1.PinCreated
	for _, author := range s.following(reader) {
		if !s.mutes[[2]string{reader, author}] {
			pins = append(pins, s.pins[author]...)
		}
	}

	slices.SortFunc(pins, func(a, b *skeinv1.PinCreated) int {
		return cmp.Compare(s.pinnedAt[b.GetPin().GetPinId()], s.pinnedAt[a.GetPin().GetPinId()])
	})
	var texts []string
	for _, p := range pins {
		texts = append(texts, pinText(p))
	}
	return texts
}

// sumOfPairs adds up the amounts of those pairs that have an id at one end: 0 for the first of the
// pair, and 1 for the second.
func sumOfPairs[V any](pairs map[[2]string]V, end int, id string, amount func(V) int) (sum int64) {
	for pair, v := range pairs {
		if pair[end] == id {
			sum += int64(amount(v))
		}
	}
	return sum
}

// countOne is an amount for [sumOfPairs] that counts each pair once.
func countOne[V any](V) int { return 1 }

// countPlays is an amount for [sumOfPairs] that counts each play.
func countPlays(n int) int { return n }

// userCounters returns the counters of a user.
func (s *expectedState) userCounters(user string) *skeinv1.Counters {
	return &skeinv1.Counters{
		PinCount:      uint32(len(s.pins[user])),
		BoardCount:    uint32(sumOfPairs(s.boards, 0, user, countOne)),
		FollowerCount: uint32(sumOfPairs(s.followedAt, 1, user, countOne)),
		PlayCount:     sumOfPairs(s.plays, 0, user, countPlays),
	}
}

// itemCounters returns the counters of an item.
func (s *expectedState) itemCounters(item string) *skeinv1.Counters {
	counters := &skeinv1.Counters{PlayCount: sumOfPairs(s.plays, 1, item, countPlays)}

	// The service lists only kinds of reactions with a count. A reaction without a kind is a like.
	likes := sumOfPairs(s.likes, 1, item, countOne)
	if likes > 0 {
		counters.Reactions = []*skeinv1.ReactionCount{{Kind: "like", Count: uint32(likes)}}
	}
	return counters
}

// likeCount returns the number of likes in the counters of an item.
func likeCount(c *skeinv1.Counters) uint32 {
	for _, r := range c.GetReactions() {
		if r.GetKind() == "like" {
			return r.GetCount()
		}
	}
	return 0
}
