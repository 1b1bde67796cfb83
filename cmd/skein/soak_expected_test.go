package main

import (
	"cmp"
	"slices"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// expectedState computes what the service should answer from the events of one writer. It is
// written from the documentation of the API alone, and shares no code with skein. No other writer
// publishes about the same users, so the order of the events is known.
type expectedState struct {
	// clock counts the events.
	clock int
	// followedAt has, for a follower and a followee, when the follow began.
	followedAt map[[2]string]int
	blocks     map[[2]string]bool
	// unblocked has the pairs whose latest event about a block is an unblock. The first unblock of
	// a pair may end a block that is imported later.
	unblocked map[[2]string]bool
	// renewable has the follows that were followed by such an unblock. A repeat of the follow is
	// then the newer one.
	renewable map[[2]string]bool
	mutes     map[[2]string]bool
	boards    map[[2]string]bool // owner and board, without default boards
	pins      map[string][]*skeinv1.PinCreated
	pinnedAt  map[string]int     // when a pin was made
	likes     map[[2]string]bool // user and item
	plays     map[[2]string]int  // user and item
	served    map[string][]string
}

func newExpectedState() *expectedState {
	return &expectedState{
		followedAt: map[[2]string]int{}, blocks: map[[2]string]bool{}, mutes: map[[2]string]bool{}, boards: map[[2]string]bool{},
		unblocked: map[[2]string]bool{}, renewable: map[[2]string]bool{},
		pins: map[string][]*skeinv1.PinCreated{}, pinnedAt: map[string]int{}, likes: map[[2]string]bool{}, plays: map[[2]string]int{}, served: map[string][]string{},
	}
}

// apply adds an event.
func (s *expectedState) apply(ev *skeinv1.Event) {
	s.clock++
	switch k := ev.GetKind().(type) {
	case *skeinv1.Event_UserFollowed:
		a, b := k.UserFollowed.GetUserId(), k.UserFollowed.GetTargetUserId()
		_, already := s.followedAt[[2]string{a, b}]
		isRepeat := already && !s.renewable[[2]string{a, b}]
		if !isRepeat && !s.blocks[[2]string{a, b}] && !s.blocks[[2]string{b, a}] {
			s.followedAt[[2]string{a, b}] = s.clock
			delete(s.renewable, [2]string{a, b})
		}
	case *skeinv1.Event_UserUnfollowed:
		delete(s.followedAt, [2]string{k.UserUnfollowed.GetUserId(), k.UserUnfollowed.GetTargetUserId()})
	case *skeinv1.Event_UserBlocked:
		a, b := k.UserBlocked.GetUserId(), k.UserBlocked.GetTargetUserId()
		s.blocks[[2]string{a, b}] = true
		delete(s.unblocked, [2]string{a, b})
		delete(s.followedAt, [2]string{a, b})
		delete(s.followedAt, [2]string{b, a})
	case *skeinv1.Event_UserUnblocked:
		a, b := k.UserUnblocked.GetUserId(), k.UserUnblocked.GetTargetUserId()
		if !s.blocks[[2]string{a, b}] && !s.unblocked[[2]string{a, b}] {
			s.renewable[[2]string{a, b}] = true
			s.renewable[[2]string{b, a}] = true
		}
		s.unblocked[[2]string{a, b}] = true
		delete(s.blocks, [2]string{a, b})
	case *skeinv1.Event_UserMuted:
		s.mutes[[2]string{k.UserMuted.GetUserId(), k.UserMuted.GetTargetUserId()}] = true
	case *skeinv1.Event_UserUnmuted:
		delete(s.mutes, [2]string{k.UserUnmuted.GetUserId(), k.UserUnmuted.GetTargetUserId()})
	case *skeinv1.Event_PinCreated:
		owner := k.PinCreated.GetPin().GetOwnerId()
		s.pins[owner] = append(s.pins[owner], k.PinCreated)
		s.pinnedAt[k.PinCreated.GetPin().GetPinId()] = s.clock
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
		user, items := k.Served.GetUserId(), k.Served.GetItemIds()
		rest := slices.DeleteFunc(s.served[user], func(item string) bool { return slices.Contains(items, item) })
		s.served[user] = append(slices.Clone(items), rest...)
	default:
		panic("expectedState does not know this event")
	}
}

// otherEnds returns the users at the other end of the follows of a user, newest first: the
// followees for end 0, and the followers for end 1.
func (s *expectedState) otherEnds(user string, end int) []string {
	var ends []string
	when := map[string]int{}
	for pair, at := range s.followedAt {
		if pair[end] == user {
			ends = append(ends, pair[1-end])
			when[pair[1-end]] = at
		}
	}
	slices.SortFunc(ends, func(a, b string) int { return cmp.Compare(when[b], when[a]) })
	return ends
}

func (s *expectedState) following(user string) []string { return s.otherEnds(user, 0) }
func (s *expectedState) followers(user string) []string { return s.otherEnds(user, 1) }

// pinText returns how a pin is compared in a list: owner, board, pin and item.
func pinText(p *skeinv1.PinCreated) string {
	return p.GetPin().GetOwnerId() + "/" + p.GetBoardId() + "/" + p.GetPin().GetPinId() + "=" + p.GetItemId()
}

// pinsOf returns the pins of a user that are not deleted, newest first.
func (s *expectedState) pinsOf(owner string) []string {
	var all []string
	for _, p := range slices.Backward(s.pins[owner]) {
		all = append(all, pinText(p))
	}
	return all
}

// feed returns the home feed of a reader, newest first.
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
	var all []string
	for _, p := range pins {
		all = append(all, pinText(p))
	}
	return all
}

// sumOfPairs adds up the amounts of those pairs that have a name at one end.
func sumOfPairs[V any](pairs map[[2]string]V, end int, name string, amount func(V) int) (n int64) {
	for pair, v := range pairs {
		if pair[end] == name {
			n += int64(amount(v))
		}
	}
	return n
}

// countOne counts each pair once.
func countOne[V any](V) int { return 1 }

// userCounters returns the counters of a user.
func (s *expectedState) userCounters(user string) *skeinv1.Counters {
	return &skeinv1.Counters{
		PinCount:      uint32(len(s.pins[user])),
		BoardCount:    uint32(sumOfPairs(s.boards, 0, user, countOne)),
		FollowerCount: uint32(sumOfPairs(s.followedAt, 1, user, countOne)),
		PlayCount:     sumOfPairs(s.plays, 0, user, func(n int) int { return n }),
	}
}

// itemCounters returns the counters of an item.
func (s *expectedState) itemCounters(item string) *skeinv1.Counters {
	counts := &skeinv1.Counters{PlayCount: sumOfPairs(s.plays, 1, item, func(n int) int { return n })}
	if n := sumOfPairs(s.likes, 1, item, countOne); n > 0 {
		counts.Reactions = []*skeinv1.ReactionCount{{Kind: "like", Count: uint32(n)}}
	}
	return counts
}

// likeCount returns the number of likes.
func likeCount(c *skeinv1.Counters) uint32 {
	for _, r := range c.GetReactions() {
		if r.GetKind() == "like" {
			return r.GetCount()
		}
	}
	return 0
}
