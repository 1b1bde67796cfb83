package inbox

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
)

// AbsenceReasons is a set of reasons, one bit each, why a pin is not in a feed. The empty set means
// that the pin is in the feed.
//
// [Queries.Explain] fills the set in three steps:
//
//  1. The pin and the relations of the reader to the owner and, if the pin is a re-pin, to the owner of the pin that it repeats give every reason
//     that holds among AbsenceNotLiving, AbsenceOwnPin, AbsenceNotFollowed, AbsenceBoardExcluded, AbsenceOwnerMuted, AbsenceRepinsHidden,
//     AbsenceNotSelected, AbsenceBlocked, AbsenceRepinOfMuted, AbsenceRepinOfBlocked, AbsenceRepinOfDeleted and AbsenceHidden.
//  2. [Feed.HiddenItems] adds AbsenceItemHidden. It is asked about an item, so it is not asked when the pin does not live and its item is unknown.
//  3. AbsenceNotRanked and AbsenceItemShown depend on the other pins of the feed. They are looked for only if the first two steps found nothing.
//
// Pages use the same code for the first two steps, so an explanation and a page cannot disagree
// about a pin.
type AbsenceReasons uint16

// The reasons for an absence.
const (
	// AbsenceNotLiving: the pin was never created, or it was deleted, perhaps with its board or its
	// owner. The rows do not tell these cases apart. They do not tell the board of such a pin
	// either, so AbsenceNotLiving comes with AbsenceNotFollowed only if the reader follows neither
	// the owner nor any board of the owner, and never with AbsenceBoardExcluded.
	AbsenceNotLiving AbsenceReasons = 1 << iota
	// AbsenceOwnPin: the reader owns the pin, and [Feed.IncludeOwn] is not set. No reason that
	// concerns relations is given with it.
	AbsenceOwnPin
	// AbsenceNotFollowed: the reader follows neither the owner nor the board of the pin.
	AbsenceNotFollowed
	// AbsenceBoardExcluded: the reader follows the owner and has unfollowed this one board.
	AbsenceBoardExcluded
	// AbsenceOwnerMuted: the reader mutes the owner.
	AbsenceOwnerMuted
	// AbsenceRepinsHidden: the pin is a re-pin, and the reader hides the re-pins of the owner, or
	// the feed has none ([Feed.Only]).
	AbsenceRepinsHidden
	// AbsenceBlocked: the reader blocks the owner, or the owner blocks the reader. A block removes
	// the follows between the two, so AbsenceNotFollowed is always given with it.
	AbsenceBlocked
	// AbsenceItemHidden: [Feed.HiddenItems] reports that the item is to be left out.
	AbsenceItemHidden
	// AbsenceNotRanked: in the order Trending, the pin is not among the newest [Feed.MaxRanked]
	// pins of the feed, or it is newer than the position whose scores are used. Only the others are
	// shown.
	AbsenceNotRanked
	// AbsenceItemShown: the feed shows one entry per item, and another pin of the item is that
	// entry. It can come with AbsenceNotRanked.
	AbsenceItemShown
	// AbsenceNotSelected: the owner is not among those of a feed with [Feed.Only].
	AbsenceNotSelected
	// AbsenceRepinOfMuted: the pin repeats a pin of another user, whom the reader mutes.
	AbsenceRepinOfMuted
	// AbsenceRepinOfBlocked: the pin repeats a pin of another user, and the reader blocks that user
	// or is blocked by that user.
	AbsenceRepinOfBlocked
	// AbsenceRepinOfDeleted: the pin repeats a pin of a user who was deleted since.
	AbsenceRepinOfDeleted
	// AbsenceHidden: the reader hides the item of the pin.
	AbsenceHidden
)

// absenceChecker decides whether a reader may see pins. It reads only the relation of the reader to
// the owner, so it can be used without the merge of outboxes that a [feedIterator] starts.
type absenceChecker struct {
	graph *graph.Queries
	state State
	feed  *Feed
	// hidesItems is whether the reader hides any item. It is read when the first pin is met, which
	// sets hidesKnown.
	hidesItems, hidesKnown bool
	key                    []byte
	// relations caches the relation of the reader to each owner met so far, of pins and of the pins
	// that they repeat: a page has many pins of few owners.
	relations map[string]ownerRelation
	// selected caches the owners of a feed with [Feed.Only]. It is nil until it is asked for.
	selected map[string]bool
}

// ownerRelation is what a reader has decided about an owner.
type ownerRelation struct {
	graph.Visibility
	// seesBoard caches whether the reader sees the boards that were asked about. It is nil until
	// the first board is asked about.
	seesBoard map[string]bool
}

func newAbsenceChecker(q *Queries, f *Feed) absenceChecker {
	// 32 owners fill a page of usual length without growing the map.
	return absenceChecker{graph: q.graph, state: q.state, feed: f, relations: make(map[string]ownerRelation, 32)}
}

// reasons returns the reasons for which the reader does not see a living pin of an owner, or an
// empty set if the reader sees it. If p is nil it returns the reasons that hold for all pins of the
// owner.
func (c *absenceChecker) reasons(owner string, p *Pin) (reasons AbsenceReasons, err error) {
	if owner == c.feed.Reader && !c.feed.IncludeOwn {
		return AbsenceOwnPin, nil
	}
	if p != nil && p.Repin {
		if reasons, err = c.repinReasons(p); err != nil {
			return 0, err
		}
		if c.feed.Only == events.SettingNotify {
			reasons |= AbsenceRepinsHidden
		}
	}
	if p != nil {
		hidden, err := c.hidesItem(p.Item)
		if err != nil {
			return 0, err
		}
		if hidden {
			reasons |= AbsenceHidden
		}
	}
	if owner == c.feed.Reader {
		return reasons, nil
	}
	if c.feed.Only != 0 {
		selected, err := c.selectedOwners()
		if err != nil {
			return 0, err
		}
		if !selected[owner] {
			reasons |= AbsenceNotSelected
		}
	}

	relation, err := c.relationTo(owner)
	if err != nil {
		return 0, err
	}

	if relation.Muted {
		reasons |= AbsenceOwnerMuted
	}
	if relation.RepinsHidden && p != nil && p.Repin {
		reasons |= AbsenceRepinsHidden
	}
	if relation.Blocked {
		reasons |= AbsenceBlocked
	}

	// A relation to single boards overrides the relation to the owner: it adds boards or excludes
	// them.
	follows := relation.Explicit
	if relation.Boards {
		if follows, err = c.followsBoardOf(relation, owner, p); err != nil {
			return 0, err
		}
	}

	switch {
	case follows:
	case relation.Explicit:
		reasons |= AbsenceBoardExcluded
	default:
		reasons |= AbsenceNotFollowed
	}
	return reasons, nil
}

// errSelected ends the walk over the owners of a feed with [Feed.Only] when there are enough.
var errSelected = errors.New("inbox: enough owners are selected")

// selectedOwners returns the owners of a feed with [Feed.Only].
func (c *absenceChecker) selectedOwners() (map[string]bool, error) {
	if c.selected != nil {
		return c.selected, nil
	}

	selected := map[string]bool{}
	err := c.graph.EachFolloweeWith(c.feed.Reader, c.feed.Only, func(owner string) error {
		if len(selected) == MaxSelectedOwners {
			return errSelected
		}
		selected[owner] = true
		return nil
	})
	if err != nil && !errors.Is(err, errSelected) {
		return nil, err
	}
	c.selected = selected
	return selected, nil
}

// hidesOwner reports whether the reader sees no pin of an owner, because the reader mutes the owner
// or a block separates the two.
func (c *absenceChecker) hidesOwner(owner string) (bool, error) {
	if owner == c.feed.Reader {
		return false, nil
	}
	relation, err := c.relationTo(owner)
	return relation.Muted || relation.Blocked, err
}

// repinReasons returns the reasons for which the reader does not see a re-pin, whoever owns it,
// because of the owner of the pin that it repeats.
func (c *absenceChecker) repinReasons(p *Pin) (reasons AbsenceReasons, err error) {
	switch p.RepinOwner {
	case "":
		return AbsenceRepinOfDeleted, nil
	case p.Owner, c.feed.Reader:
		return 0, nil // what the reader thinks of the owner of the re-pin is looked at anyway
	}

	relation, err := c.relationTo(p.RepinOwner)
	if err != nil {
		return 0, err
	}
	if relation.Muted {
		reasons |= AbsenceRepinOfMuted
	}
	if relation.Blocked {
		reasons |= AbsenceRepinOfBlocked
	}
	return reasons, nil
}

// hidesItem reports whether the reader hides an item. Most readers hide none, which costs one read
// for all pins.
func (c *absenceChecker) hidesItem(item string) (bool, error) {
	if !c.hidesKnown {
		n, err := hiddenItems.CountOf(c.state, c.feed.Reader)
		if err != nil {
			return false, err
		}
		c.hidesItems, c.hidesKnown = n > 0, true
	}
	if !c.hidesItems {
		return false, nil
	}
	return hiddenItems.Hides(c.state, &c.key, c.feed.Reader, item)
}

// relationTo returns what the reader has decided about a user. The rows are at the home of the
// reader, also those of blocks by the user.
func (c *absenceChecker) relationTo(user string) (relation ownerRelation, err error) {
	relation, cached := c.relations[user]
	if cached {
		return relation, nil
	}
	if relation.Visibility, err = c.graph.Visibility(c.feed.Reader, user); err == nil {
		c.relations[user] = relation
	}
	return relation, err
}

// followsBoardOf reports whether the reader follows the board of a pin. If p is nil it reports
// whether the reader follows the owner or any board of the owner. It is called only for a reader
// who has relations to single boards of the owner.
func (c *absenceChecker) followsBoardOf(relation ownerRelation, owner string, p *Pin) (bool, error) {
	if p == nil {
		user, err := c.graph.UserFollow(c.feed.Reader, owner)
		return user.Kind != graph.None, err
	}
	if sees, cached := relation.seesBoard[p.Board]; cached {
		return sees, nil
	}

	sees, err := c.graph.SeesBoard(c.feed.Reader, owner, p.Board)
	if err != nil {
		return false, err
	}
	if relation.seesBoard == nil {
		relation.seesBoard = map[string]bool{}
		c.relations[owner] = relation // relation is a copy, so the map must be stored
	}
	relation.seesBoard[p.Board] = sees
	return sees, nil
}
