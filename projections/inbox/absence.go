package inbox

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
)

// AbsenceReasons is a set of reasons, one bit each, why a pin is not in a feed. The empty set means
// that the pin is in the feed.
//
// [Queries.Explain] fills the set in three steps:
//
//  1. It looks at the pin, at the relations of the reader to the owner of the pin and, for a
//     re-pin, to the owner of the pin that it repeats, and at the items that the reader hides. It
//     adds every reason that holds among AbsenceNotLiving, AbsenceNotFollowed,
//     AbsenceBoardExcluded, AbsenceOwnerMuted, AbsenceRepinsHidden, AbsenceBlocked,
//     AbsenceNotSelected, AbsenceRepinOfMuted, AbsenceRepinOfBlocked, AbsenceRepinOfDeleted and
//     AbsenceHidden. AbsenceOwnPin, if it holds, replaces all of these except AbsenceNotLiving.
//  2. It calls [Feed.HiddenItems], which may add AbsenceItemHidden. It does not do so if the pin
//     does not live, because the item is not known then.
//  3. It looks for AbsenceNotRanked and AbsenceItemShown, which depend on the other pins of the
//     feed. It does so only if the first two steps have found no reason. For a pin of another node,
//     it may find AbsenceNotLiving.
//
// Pages use the same code for the first step, and ask the same function in the second, so an
// explanation and a page cannot disagree about a pin.
type AbsenceReasons uint16

// The reasons for an absence.
const (
	// AbsenceNotLiving: the pin was never created, or it was deleted, perhaps with its board or its
	// owner. The rows do not tell these cases apart. Nor do they tell on which board such a pin
	// was. So AbsenceNotLiving comes with AbsenceNotFollowed only if the reader follows neither the
	// owner nor any board of the owner, and it never comes with AbsenceBoardExcluded.
	AbsenceNotLiving AbsenceReasons = 1 << iota
	// AbsenceOwnPin: the reader owns the pin, and [Feed.IncludeOwn] is not set. Only
	// AbsenceNotLiving and AbsenceItemHidden can come with it.
	AbsenceOwnPin
	// AbsenceNotFollowed: the reader follows neither the owner nor the board of the pin.
	AbsenceNotFollowed
	// AbsenceBoardExcluded: the reader follows the owner and has unfollowed this one board.
	AbsenceBoardExcluded
	// AbsenceOwnerMuted: the reader mutes the owner.
	AbsenceOwnerMuted
	// AbsenceRepinsHidden: the pin is a re-pin. The reader hides the re-pins of the owner, or the
	// feed has no re-pins, because its [Feed.Only] is [events.SettingNotify].
	AbsenceRepinsHidden
	// AbsenceBlocked: the reader blocks the owner, or the owner blocks the reader. A block removes
	// the follows between the two, so AbsenceNotFollowed is always given with it.
	AbsenceBlocked
	// AbsenceItemHidden: [Feed.HiddenItems] reports that the item is to be left out. This is not
	// AbsenceHidden, which the rows of this store decide.
	AbsenceItemHidden
	// AbsenceNotRanked: the feed is in the order Trending, which shows only ranked pins. The pin is
	// not ranked, because it is not among the newest [Feed.MaxRanked] pins of the feed, or because
	// it is newer than the position whose scores are used.
	AbsenceNotRanked
	// AbsenceItemShown: the feed shows only the first pin of each item ([Feed.OnePerItem]), and
	// that is another pin. AbsenceItemShown can come with AbsenceNotRanked.
	AbsenceItemShown
	// AbsenceNotSelected: the feed has [Feed.Only], and the owner is not among the selected owners.
	AbsenceNotSelected
	// AbsenceRepinOfMuted: the pin repeats a pin of another user, whom the reader mutes.
	AbsenceRepinOfMuted
	// AbsenceRepinOfBlocked: the pin repeats a pin of another user, and the reader blocks that user
	// or is blocked by that user.
	AbsenceRepinOfBlocked
	// AbsenceRepinOfDeleted: the pin repeats a pin of a user who was deleted.
	AbsenceRepinOfDeleted
	// AbsenceHidden: the reader has hidden the item of the pin ([Queries.Hiding]).
	AbsenceHidden
)

// absenceChecker decides whether the reader of a feed may see pins, which its caller has read. It
// reads the relations of the reader, and the items that the reader hides. It merges no outboxes, so
// an explanation can use it without a [feedIterator].
type absenceChecker struct {
	graph *graph.Queries
	state State
	feed  *Feed
	// hidden has the items that the reader hides. It is nil if they are not in memory.
	hidden *inboxcache.HiddenItems
	// hidesItems is whether the reader hides any item. It is valid once hidesKnown is set, which is
	// when the first pin is checked without hidden.
	hidesItems, hidesKnown bool
	// key is memory for keys, reused by each read.
	key []byte
	// relations caches the relation of the reader to each user about whom it was needed so far: the
	// owners of pins, and the owners of the pins that these repeat. A page has many pins of few
	// owners.
	relations map[string]ownerRelation
	// selected caches the selected owners of a feed with [Feed.Only]. It is nil until they are
	// read.
	selected map[string]bool
}

// ownerRelation is the relation of a reader to another user who owns pins. That includes a block of
// the reader by this user.
type ownerRelation struct {
	graph.Visibility
	// seesBoard caches, for each board of the user that was needed so far, whether the reader sees
	// the board. It is nil until the first one is needed.
	seesBoard map[string]bool
}

// newAbsenceChecker returns a checker for the reader and the settings of a feed.
func newAbsenceChecker(q *Queries, f *Feed) absenceChecker {
	// A page of usual length has pins of at most 32 owners, so its map need not grow.
	relations := make(map[string]ownerRelation, 32)
	return absenceChecker{graph: q.graph, state: q.state, feed: f, relations: relations}
}

// reasons returns the reasons why the reader does not see a living pin of an owner, or an empty set
// if the reader sees the pin. If p is nil, reasons returns the reasons that hold for all pins of
// the owner. It does not ask [Feed.HiddenItems].
func (c *absenceChecker) reasons(owner string, p *Pin) (reasons AbsenceReasons, err error) {
	if owner == c.feed.Reader && !c.feed.IncludeOwn {
		return AbsenceOwnPin, nil
	}

	// These reasons depend on the pin, and hold for own pins, too.
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

	// All other reasons depend on the relation of the reader to another user.
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

	// Relations to single boards override the relation to the owner: the reader may follow a board
	// without the owner, or exclude a board of an owner whom the reader follows.
	follows := relation.Explicit
	if relation.Boards {
		if follows, err = c.seesBoardOfPin(relation, owner, p); err != nil {
			return 0, err
		}
	}

	switch {
	case follows: // no reason
	case relation.Explicit:
		reasons |= AbsenceBoardExcluded
	default:
		reasons |= AbsenceNotFollowed
	}
	return reasons, nil
}

// errSelected stops the iteration in selectedOwners once MaxSelectedOwners owners are found.
var errSelected = errors.New("inbox: enough owners are selected")

// selectedOwners returns the selected owners of a feed with [Feed.Only]: of the owners whom the
// reader follows with this setting, the [MaxSelectedOwners] whose settings the reader changed last.
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

// hidesOwner reports whether the reader sees no pin of an owner because the reader mutes the owner,
// or because one of the two blocks the other.
func (c *absenceChecker) hidesOwner(owner string) (bool, error) {
	if owner == c.feed.Reader {
		return false, nil
	}
	relation, err := c.relationTo(owner)
	return relation.Muted || relation.Blocked, err
}

// repinReasons returns the reasons why the reader does not see a re-pin that lie in the owner of
// the repeated pin. They do not depend on who owns the re-pin.
func (c *absenceChecker) repinReasons(p *Pin) (reasons AbsenceReasons, err error) {
	switch p.RepinOwner {
	case "":
		return AbsenceRepinOfDeleted, nil
	case p.Owner, c.feed.Reader:
		// If the owner repeats one of their own pins, the caller checks that relation anyway. If
		// the owner repeats a pin of the reader, there is no relation to check: nobody mutes or
		// blocks themselves.
		return 0, nil
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

// hidesItem reports whether the reader hides an item.
func (c *absenceChecker) hidesItem(item string) (bool, error) {
	if c.hidden != nil {
		return c.hidden.Contains(item), nil
	}

	// Most readers hide no items. So read the number of hidden items once, instead of a row for
	// each pin.
	if !c.hidesKnown {
		n, err := hiddenItems.CountOf(c.state, c.feed.Reader)
		if err != nil {
			return false, err
		}
		c.hidesItems = n > 0
		c.hidesKnown = true
	}

	if !c.hidesItems {
		return false, nil
	}
	return hiddenItems.Hides(c.state, &c.key, c.feed.Reader, item)
}

// relationTo returns the relation of the reader to a user. All its rows are at the home of the
// reader, even a block of the reader by the user. So they are in the state even if the rows of the
// user are on another node.
func (c *absenceChecker) relationTo(user string) (relation ownerRelation, err error) {
	relation, cached := c.relations[user]
	if cached {
		return relation, nil
	}

	relation.Visibility, err = c.graph.Visibility(c.feed.Reader, user)
	if err == nil {
		c.relations[user] = relation
	}
	return relation, err
}

// seesBoardOfPin reports whether the reader follows the board of a pin, or follows the owner and
// has not excluded the board. If p is nil, seesBoardOfPin reports whether the reader follows the
// owner or any board of the owner. It is needed only if the reader may have relations to single
// boards of the owner.
func (c *absenceChecker) seesBoardOfPin(relation ownerRelation, owner string, p *Pin) (bool, error) {
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
