package main

import (
	"cmp"
	"slices"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ledger is what one writer was told to be facts, and what follows from them. It is written from
// the API's documentation alone and shares no code with skein. Only one writer tells of its users,
// so there is one order of its facts.
type ledger struct {
	clock   int
	follows map[[2]string]int // follower and user, and when it began
	blocks  map[[2]string]bool
	// unblocked has the pairs whose latest fact about a block is its end. The first such end may
	// end a block that is imported later.
	unblocked map[[2]string]bool
	// renewable has the follows that such an end came after: a repeat of the follow is the newer
	// one then.
	renewable map[[2]string]bool
	mutes     map[[2]string]bool
	boards    map[[2]string]bool // owner and board, without default boards
	pins      map[string][]*skeinv1.PinCreated
	born      map[string]int     // when a pin was made
	likes     map[[2]string]bool // user and item
	plays     map[[2]string]int  // user and item
	served    map[string][]string
}

func newLedger() *ledger {
	return &ledger{
		follows: map[[2]string]int{}, blocks: map[[2]string]bool{}, mutes: map[[2]string]bool{}, boards: map[[2]string]bool{},
		unblocked: map[[2]string]bool{}, renewable: map[[2]string]bool{},
		pins: map[string][]*skeinv1.PinCreated{}, born: map[string]int{}, likes: map[[2]string]bool{}, plays: map[[2]string]int{}, served: map[string][]string{},
	}
}

// apply takes a fact.
func (l *ledger) apply(ev *skeinv1.Event) {
	l.clock++
	switch k := ev.GetKind().(type) {
	case *skeinv1.Event_UserFollowed:
		a, b := k.UserFollowed.GetUserId(), k.UserFollowed.GetTargetUserId()
		_, already := l.follows[[2]string{a, b}]
		isRepeat := already && !l.renewable[[2]string{a, b}]
		if !isRepeat && !l.blocks[[2]string{a, b}] && !l.blocks[[2]string{b, a}] {
			l.follows[[2]string{a, b}] = l.clock
			delete(l.renewable, [2]string{a, b})
		}
	case *skeinv1.Event_UserUnfollowed:
		delete(l.follows, [2]string{k.UserUnfollowed.GetUserId(), k.UserUnfollowed.GetTargetUserId()})
	case *skeinv1.Event_UserBlocked:
		a, b := k.UserBlocked.GetUserId(), k.UserBlocked.GetTargetUserId()
		l.blocks[[2]string{a, b}] = true
		delete(l.unblocked, [2]string{a, b})
		delete(l.follows, [2]string{a, b})
		delete(l.follows, [2]string{b, a})
	case *skeinv1.Event_UserUnblocked:
		a, b := k.UserUnblocked.GetUserId(), k.UserUnblocked.GetTargetUserId()
		if !l.blocks[[2]string{a, b}] && !l.unblocked[[2]string{a, b}] {
			l.renewable[[2]string{a, b}] = true
			l.renewable[[2]string{b, a}] = true
		}
		l.unblocked[[2]string{a, b}] = true
		delete(l.blocks, [2]string{a, b})
	case *skeinv1.Event_UserMuted:
		l.mutes[[2]string{k.UserMuted.GetUserId(), k.UserMuted.GetTargetUserId()}] = true
	case *skeinv1.Event_UserUnmuted:
		delete(l.mutes, [2]string{k.UserUnmuted.GetUserId(), k.UserUnmuted.GetTargetUserId()})
	case *skeinv1.Event_PinCreated:
		owner := k.PinCreated.GetPin().GetOwnerId()
		l.pins[owner] = append(l.pins[owner], k.PinCreated)
		l.born[k.PinCreated.GetPin().GetPinId()] = l.clock
		if board := k.PinCreated.GetBoardId(); board != "" {
			l.boards[[2]string{owner, board}] = true
		}
	case *skeinv1.Event_PinDeleted:
		owner := k.PinDeleted.GetPin().GetOwnerId()
		l.pins[owner] = slices.DeleteFunc(l.pins[owner], func(p *skeinv1.PinCreated) bool {
			return p.GetPin().GetPinId() == k.PinDeleted.GetPin().GetPinId()
		})
	case *skeinv1.Event_Reacted:
		l.likes[[2]string{k.Reacted.GetUserId(), k.Reacted.GetItemId()}] = true
	case *skeinv1.Event_Unreacted:
		delete(l.likes, [2]string{k.Unreacted.GetUserId(), k.Unreacted.GetItemId()})
	case *skeinv1.Event_Played:
		l.plays[[2]string{k.Played.GetUserId(), k.Played.GetItemId()}]++
	case *skeinv1.Event_Served:
		user, items := k.Served.GetUserId(), k.Served.GetItemIds()
		rest := slices.DeleteFunc(l.served[user], func(item string) bool { return slices.Contains(items, item) })
		l.served[user] = append(slices.Clone(items), rest...)
	default:
		panic("the ledger knows no such fact")
	}
}

// side returns the users at the other end of a user's follows, newest first: followees (0) or
// followers (1).
func (l *ledger) side(user string, of int) []string {
	var ends []string
	when := map[string]int{}
	for pair, at := range l.follows {
		if pair[of] == user {
			ends = append(ends, pair[1-of])
			when[pair[1-of]] = at
		}
	}
	slices.SortFunc(ends, func(a, b string) int { return cmp.Compare(when[b], when[a]) })
	return ends
}

func (l *ledger) following(user string) []string { return l.side(user, 0) }
func (l *ledger) followers(user string) []string { return l.side(user, 1) }

// shown is a pin in a list: its owner, board, id and item.
func shown(p *skeinv1.PinCreated) string {
	return p.GetPin().GetOwnerId() + "/" + p.GetBoardId() + "/" + p.GetPin().GetPinId() + "=" + p.GetItemId()
}

// ownPins are the living pins of a user, newest first.
func (l *ledger) ownPins(owner string) []string {
	var all []string
	for _, p := range slices.Backward(l.pins[owner]) {
		all = append(all, shown(p))
	}
	return all
}

// feed is the home feed of a reader, newest first.
func (l *ledger) feed(reader string) []string {
	var pins []*skeinv1.PinCreated
	for _, author := range l.following(reader) {
		if !l.mutes[[2]string{reader, author}] {
			pins = append(pins, l.pins[author]...)
		}
	}
	slices.SortFunc(pins, func(a, b *skeinv1.PinCreated) int {
		return cmp.Compare(l.born[b.GetPin().GetPinId()], l.born[a.GetPin().GetPinId()])
	})
	var all []string
	for _, p := range pins {
		all = append(all, shown(p))
	}
	return all
}

// countOf sums up over the pairs that have a name at one end.
func countOf[V any](pairs map[[2]string]V, of int, name string, amount func(V) int) (n int64) {
	for pair, v := range pairs {
		if pair[of] == name {
			n += int64(amount(v))
		}
	}
	return n
}

func once[V any](V) int { return 1 }

// ofUser is what is counted of a user.
func (l *ledger) ofUser(user string) *skeinv1.Counters {
	return &skeinv1.Counters{
		PinCount:      uint32(len(l.pins[user])),
		BoardCount:    uint32(countOf(l.boards, 0, user, once)),
		FollowerCount: uint32(countOf(l.follows, 1, user, once)),
		PlayCount:     countOf(l.plays, 0, user, func(n int) int { return n }),
	}
}

// ofItem is what is counted of an item.
func (l *ledger) ofItem(item string) *skeinv1.Counters {
	counts := &skeinv1.Counters{PlayCount: countOf(l.plays, 1, item, func(n int) int { return n })}
	if n := countOf(l.likes, 1, item, once); n > 0 {
		counts.Reactions = []*skeinv1.ReactionCount{{Kind: "like", Count: uint32(n)}}
	}
	return counts
}

// likesOf returns how many users like what is counted.
func likesOf(c *skeinv1.Counters) uint32 {
	for _, r := range c.GetReactions() {
		if r.GetKind() == "like" {
			return r.GetCount()
		}
	}
	return 0
}
