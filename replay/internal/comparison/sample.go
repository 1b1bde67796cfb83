package comparison

import (
	"fmt"
	"math/rand/v2"

	"github.com/skein-feed/skein/events"
)

// pair is a user who may follow a user, or a board of a user. The other is empty.
type pair struct {
	follower string
	user     string
	board    List
	// follows reports whether the source has the follow, since is then its time.
	follows bool
	since   events.Micros
}

// String returns the pair for people.
func (p *pair) String() string {
	if p.user != "" {
		return p.follower + " → " + p.user
	}
	return fmt.Sprintf("%s → board %q of %s", p.follower, p.board.Board, p.board.Owner)
}

// pairKey names the follow of a pair.
type pairKey struct {
	follower, user string
	board          List
}

func (p *pair) key() pairKey { return pairKey{p.follower, p.user, p.board} }

// sample draws random follows, users and boards while they go by.
type sample struct {
	rng     *rand.Rand
	users   reservoir[string]
	boards  reservoir[List]
	follows reservoir[pair]
	last    List
	// pairs are the drawn pairs, and drawn are their indexes.
	pairs []pair
	drawn map[pairKey]int
}

// reservoir keeps a random sample of what is offered to it, of at most size.
type reservoir[T any] struct {
	size, offered int
	kept          []T
}

func (r *reservoir[T]) offer(rng *rand.Rand, x T) {
	r.offered++
	if len(r.kept) < r.size {
		r.kept = append(r.kept, x)
	} else if i := rng.IntN(r.offered); i < r.size {
		r.kept[i] = x
	}
}

func newSample(size int, seed uint64) *sample {
	return &sample{
		rng: rand.New(rand.NewPCG(seed, 0)), drawn: map[pairKey]int{},
		users: reservoir[string]{size: size}, boards: reservoir[List]{size: size}, follows: reservoir[pair]{size: size},
	}
}

// add offers the user, board or follow of a group to the sample.
func (s *sample) add(g *group) {
	if s.follows.size == 0 || !g.List.Kind.isFollowList() {
		return
	}
	if g.List != s.last {
		if g.List.Kind == BoardFollowers {
			s.boards.offer(s.rng, g.List)
		} else if g.List.Owner != s.last.Owner || s.last.Kind == BoardFollowers {
			s.users.offer(s.rng, g.List.Owner)
		}
		s.last = g.List
	}
	if p, ok := followOf(g); ok {
		s.follows.offer(s.rng, p)
	}
}

// followOf returns the follow that a group of a follower's list is.
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

// draw draws n pairs, of which those that were drawn before count only once. Half of them are follows of the source; few of the others
// are. Pairs of users and boards are drawn if there are boards, otherwise pairs of users.
func (s *sample) draw(n int) {
	if len(s.users.kept) == 0 {
		return
	}
	for i := range n {
		p := pair{follower: pick(s.rng, s.users.kept)}
		switch {
		case i%2 == 0 && len(s.follows.kept) > 0:
			p = pick(s.rng, s.follows.kept)
		case len(s.boards.kept) > 0:
			p.board = pick(s.rng, s.boards.kept)
		default:
			p.user = pick(s.rng, s.users.kept)
		}
		if _, again := s.drawn[p.key()]; !again {
			s.drawn[p.key()] = len(s.pairs)
			s.pairs = append(s.pairs, p)
		}
	}
}

func pick[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// learn notes that drawn pairs are follows of the source, if the group is one of theirs.
func (s *sample) learn(g *group) {
	p, ok := followOf(g)
	if !ok {
		return
	}
	if i, ok := s.drawn[p.key()]; ok {
		s.pairs[i].follows, s.pairs[i].since = true, p.since
	}
}
