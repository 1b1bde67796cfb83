package graph

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// HotQuery returns the queries over a view, which are answered from memory where the store keeps what they need: the same
// answers as those of [Query].
func HotQuery(v *projections.View) *Queries {
	q := Query(v)
	if s := hotOf(v.Hot()); s != nil {
		q.hot, q.version = s, v.Version()
	}
	return q
}

// Keeper is implemented by what a store that embeds the graph keeps in memory, if that is more than relations.
type Keeper interface {
	projections.Hot
	// Relations returns what [Graph.NewHot] has made.
	Relations() projections.Hot
}

// hotOf returns what is kept of relations; nil: nothing.
func hotOf(h projections.Hot) *hotSet {
	if k, ok := h.(Keeper); ok {
		h = k.Relations()
	}
	s, _ := h.(*hotSet)
	return s
}

// hotEdges returns what the edges of a user say, and how others are compared with it; nil: it must be read. As many questions
// are asked about the user.
func (q *Queries) hotEdges(user string, questions int) *hotEntry {
	s := q.hot
	if s == nil {
		return nil
	}
	id, ok := hotIDOf(user, s.seed)
	if !ok {
		return nil
	}
	asked := &s.cache.asked[s.stripe(id.hash)]
	e, answers := s.find(&id, q.version)
	if answers && !e.bypass {
		if e.used.Load() == 0 {
			e.used.Store(1)
		}
		asked.hits.Add(uint64(questions))
		return e
	}
	asked.misses.Add(uint64(questions))
	if answers || !q.worthIt(&id, user, e, questions) {
		return nil
	}
	return q.makeHot(&id, user)
}

// hotEdge returns what one edge says.
func (q *Queries) hotEdge(a, b string) (v hotValue, ok bool) {
	e := q.hotEdges(a, 1)
	if e == nil {
		return 0, false
	}
	id, ok := hotIDOf(b, q.hot.seed)
	if !ok {
		return 0, false
	}
	return e.find(&id), true
}

// worthIt reports whether an entry shall be made for a user who has none, or one that does not answer any more. It shall not
// before the second call, and not before about as much was read in single rows as it costs: so one walk over many users
// keeps nothing, and a large user who changes all the time costs not much more than without.
func (q *Queries) worthIt(id *hotID, user string, last *hotEntry, questions int) bool {
	s := q.hot
	if s.bucket(id.hash).changed.Load() > q.version {
		return false // it would not answer
	}
	if last != nil {
		return int(last.missed.Add(uint32(questions)))*rowsAMiss >= last.edges()
	}
	before := s.seen(id, questions)
	if before == 0 {
		return false
	}
	c, err := q.UserCounts(user)
	missed := before + questions
	return err == nil && (missed >= 0xff || int64(missed*rowsAMiss) >= c.Following+c.FollowingImplicit)
}

// makeHot reads the edges of a user and keeps them; nil: they are too many, or somebody else is making an entry.
func (q *Queries) makeHot(id *hotID, user string) *hotEntry {
	s := q.hot
	m := &s.making[s.stripe(id.hash)]
	if !m.TryLock() {
		return nil
	}
	defer m.Unlock()
	if m.closed {
		return nil
	}
	edges, ok := q.readHot(user)
	e := &hotEntry{num: id.num, version: q.version, bypass: true}
	if ok {
		e = newHotEntry(*id, q.version, edges)
	} else if id.text != "" {
		e.rest = &hotRest{text: id.text}
	}
	s.add(id, e)
	if e.bypass {
		return nil
	}
	return e
}

// readHot reads the edges of a user. It is not ok if they are too many, or if one of them cannot be told: then who asks
// about that one hears why.
func (q *Queries) readHot(user string) (edges []hotEdge, ok bool) {
	prefix := projections.AppendKey(nil, tagEdge, user)
	it := q.r.Iter(prefix, projections.PrefixEnd(prefix))
	err := func() error {
		for rows := 0; it.Next(); rows++ {
			if rows == maxHotEdges {
				return errTooHot
			}
			text, _, err := events.CutID(it.Key()[len(prefix):])
			if err != nil {
				return err
			}
			var e edge
			if err := e.decode(it.Value()); err != nil {
				return err
			}
			id, named := hotIDOf(text, q.hot.seed)
			value, fits := hotValueOf(&e)
			if !named || !fits {
				return errTooHot
			}
			if value != 0 {
				edges = append(edges, hotEdge{id, value})
			}
		}
		return nil
	}()
	return edges, errors.Join(err, it.Close()) == nil
}

var errTooHot = errors.New("graph: the edges of a user do not fit into an entry")
