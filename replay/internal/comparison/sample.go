package comparison

import (
	"fmt"
	"math/rand/v2"

	"github.com/skein-feed/skein/events"
)

// pair is a follower and a user or board that the follower may follow. Of user and board, one is
// empty.
type pair struct {
	follower string
	user     string
	board    List
	// follows reports whether the source has this follow.
	follows bool
	// since is the time of the follow; 0 unless follows is set.
	since events.Micros
}

// String returns the pair for people, as in "u1 → u2".
func (p *pair) String() string {
	if p.user != "" {
		return p.follower + " → " + p.user
	}
	return fmt.Sprintf("%s → board %q of %s", p.follower, p.board.Board, p.board.Owner)
}

// pairKey identifies a pair, whether it is a follow or not.
type pairKey struct {
	follower, user string
	board          List
}

func (p *pair) key() pairKey { return pairKey{p.follower, p.user, p.board} }

// pairSample draws random users, boards and follows of the source while they pass by, and makes
// pairs of them.
type pairSample struct {
	rng     *rand.Rand
	users   reservoir[string]
	boards  reservoir[List]
	follows reservoir[pair]
	// lastList is the list of the last group that was offered, by which a list with several groups
	// is recognized.
	lastList List
	// pairs are the drawn pairs, and indexes maps each to its index in pairs.
	pairs   []pair
	indexes map[pairKey]int
}

// reservoir chooses at random up to size of the elements that are offered to it, each with equal
// probability.
type reservoir[T any] struct {
	size, offered int
	chosen        []T
}

// offer passes one more element to the reservoir (reservoir sampling).
func (r *reservoir[T]) offer(rng *rand.Rand, x T) {
	r.offered++
	if len(r.chosen) < r.size {
		r.chosen = append(r.chosen, x)
	} else if i := rng.IntN(r.offered); i < r.size {
		r.chosen[i] = x
	}
}

// newPairSample returns a sample that draws up to size users, boards and follows, each. The same
// seed draws the same ones.
func newPairSample(size int, seed uint64) *pairSample {
	return &pairSample{
		rng:     rand.New(rand.NewPCG(seed, 0)),
		indexes: map[pairKey]int{},
		users:   reservoir[string]{size: size},
		boards:  reservoir[List]{size: size},
		follows: reservoir[pair]{size: size},
	}
}

// offer offers the user, board or follow of a group to the reservoirs. Groups must be offered in
// the order of lists.
func (s *pairSample) offer(g *group) {
	if s.follows.size == 0 || !g.List.Kind.isFollowList() {
		return
	}
	// Offer a user or board once, not once for each of the groups of its lists.
	if g.List != s.lastList {
		if g.List.Kind == BoardFollowers {
			s.boards.offer(s.rng, g.List)
		} else if g.List.Owner != s.lastList.Owner || s.lastList.Kind == BoardFollowers {
			s.users.offer(s.rng, g.List.Owner)
		}
		s.lastList = g.List
	}

	if p, ok := followOf(g); ok {
		s.follows.offer(s.rng, p)
	}
}

// followOf returns the follow that a group of the list of a follower stands for; false if the group
// is one of another list.
func followOf(g *group) (pair, bool) {
	p := pair{follower: g.List.Owner, follows: true, since: g.since()}
	switch {
	case g.ID == "":
		return p, false
	case g.List.Kind == Following:
		p.user = g.ID
	case g.List.Kind == FollowedBoards:
		p.board = List{BoardFollowers, g.ID, g.Board}
	default:
		return p, false
	}
	return p, true
}

// draw makes n pairs, fewer if some are drawn twice. Half of them are follows of the source,
// because random pairs hardly ever are. The others are a user and a board if the source has boards,
// and two users otherwise.
func (s *pairSample) draw(n int) {
	if len(s.users.chosen) == 0 {
		return
	}
	for i := range n {
		p := pair{follower: pickRandom(s.rng, s.users.chosen)}
		switch {
		case i%2 == 0 && len(s.follows.chosen) > 0:
			p = pickRandom(s.rng, s.follows.chosen)
		case len(s.boards.chosen) > 0:
			p.board = pickRandom(s.rng, s.boards.chosen)
		default:
			p.user = pickRandom(s.rng, s.users.chosen)
		}
		if _, again := s.indexes[p.key()]; !again {
			s.indexes[p.key()] = len(s.pairs)
			s.pairs = append(s.pairs, p)
		}
	}
}

// pickRandom returns a random element of a list, which must not be empty.
func pickRandom[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// setIfFollow records that a pair that was drawn at random is a follow of the source, if the group
// is that follow.
func (s *pairSample) setIfFollow(g *group) {
	p, ok := followOf(g)
	if !ok {
		return
	}

	if i, ok := s.indexes[p.key()]; ok {
		s.pairs[i].follows = true
		s.pairs[i].since = p.since
	}
}
