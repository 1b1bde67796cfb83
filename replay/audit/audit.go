package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
)

// Finding is a disagreement between stores.
type Finding struct {
	// Entity is whose it is.
	Entity Entity
	// Check is counts, mirror, feed, items or rows.
	Check string
	// Text says in words what is expected and what was found.
	Text string
	// Stores are those of which one is wrong.
	Stores []string
}

// String is one line.
func (f Finding) String() string { return fmt.Sprintf("%v: %s: %s", f.Entity, f.Check, f.Text) }

// Entity is what is checked at once: a user or a board.
type Entity struct {
	User string
	// Board is a board of User, if OfBoard is set: empty is the default board.
	Board   string
	OfBoard bool
}

// String names the entity.
func (e Entity) String() string {
	if e.OfBoard {
		return fmt.Sprintf("board %q of %s", e.Board, e.User)
	}
	return "user " + e.User
}

// Limits bound what one check of an entity reads; 0 means everything.
type Limits struct {
	// List is how many entries of a list are read: of longer ones the length is not compared.
	List int
	// Feed is how many of the newest entries of a feed are compared.
	Feed int
	// Turns spreads what is expensive over so many audits: feeds, and the other sides of the entries of lists. Turn, below Turns, says
	// which part of the users comes in this one. With 0 turns all of it comes.
	Turn, Turns uint64
}

// has reports whether it is the turn of a user.
func (l Limits) has(user string) bool { return l.Turns == 0 || xxh3.HashString(user)%l.Turns == l.Turn }

// Audit is the three stores at one common position. It belongs to one goroutine, and must be closed.
type Audit struct {
	// Rest is called after each check, and in it after each piece; nil means there is no rest.
	Rest func(context.Context) error
	// Hold is how long a position is held where another one would do as well: from check to check, and in the walk over the
	// other sides of a long list. Default 10 s.
	Hold time.Duration
	// Checks is how many entities were checked, Waited how long was waited for positions.
	Checks uint64
	Waited time.Duration

	limits Limits
	stores []Viewer
	views  []*projections.View
	// opened is when the views were.
	opened   time.Time
	graph    *graph.Queries
	inbox    *inbox.Queries
	counters *counters.Queries

	entity   Entity
	findings []Finding
	// later are long lists of the entity of which the other sides are looked up when all that needs one position is done.
	later []rest
}

// Open returns the stores at their next common position.
func Open(ctx context.Context, graphs, inboxes, counts Viewer, limits Limits) (*Audit, error) {
	a := &Audit{
		Hold: 10 * time.Second, limits: limits, stores: []Viewer{graphs, inboxes, counts},
		graph: &graph.Queries{}, inbox: &inbox.Queries{}, counters: &counters.Queries{},
	}
	return a, a.open(ctx)
}

func (a *Audit) open(ctx context.Context) (err error) {
	if a.views, err = Common(ctx, a.stores...); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	a.opened = time.Now()
	// The queries stay where they are: who walks over a list continues with them.
	*a.graph, *a.inbox, *a.counters = *graph.Query(a.views[0]), *inbox.Query(a.views[1]), *counters.Query(a.views[2])
	return nil
}

// move goes to the next common position if this one was held for long. Nothing that was read before may be compared with what
// is read after.
func (a *Audit) move(ctx context.Context) error {
	if time.Since(a.opened) < a.Hold {
		return nil
	}
	began := time.Now()
	err := a.Close()
	if err == nil {
		err = a.open(ctx)
	}
	a.Waited += time.Since(began)
	return err
}

// Seq is the common position.
func (a *Audit) Seq() uint64 {
	seq := uint64(0)
	for _, v := range a.views {
		seq = max(seq, v.Cursor().Seq)
	}
	return seq
}

// Close releases the views.
func (a *Audit) Close() error {
	err := closeAll(a.views)
	a.views = nil
	return err
}

// Findings returns what was found so far, and forgets it.
func (a *Audit) Findings() []Finding {
	found := a.findings
	a.findings = nil
	return found
}

// Check checks an entity. What disagrees is a finding; an error is that of the context or a store.
func (a *Audit) Check(ctx context.Context, e Entity) error {
	if err := a.move(ctx); err != nil {
		return err
	}
	a.entity = e
	a.Checks++
	a.later = a.later[:0]
	var err error
	if e.OfBoard {
		err = a.board(ctx, e.User, e.Board)
	} else {
		err = a.user(ctx, e.User)
	}
	if err == nil {
		err = a.mirrors(ctx)
	}
	if corrupt(err) {
		a.find("rows", []string{"graph", "inbox", "counters"}, "%v", err)
		err = nil
	}
	return errors.Join(err, a.rest(ctx))
}

func (a *Audit) rest(ctx context.Context) error {
	if a.Rest == nil {
		return ctx.Err()
	}
	return a.Rest(ctx)
}

// corrupt reports whether an error is of a row that no fold can have written.
func corrupt(err error) bool {
	return errors.Is(err, projections.ErrCorrupt) || errors.Is(err, events.ErrKeyID)
}

func (a *Audit) find(check string, stores []string, format string, args ...any) {
	a.findings = append(a.findings, Finding{a.entity, check, fmt.Sprintf(format, args...), stores})
}

// NextShard returns the first shard from the given one on in which any of the stores has rows; events.NumShards: none has.
func (a *Audit) NextShard(from events.Shard) (events.Shard, error) {
	next := events.Shard(events.NumShards)
	for _, v := range a.views {
		shard, err := projections.NextShard(v, from, next)
		if err != nil {
			return from, err
		}
		next = min(next, shard)
	}
	return next, nil
}

// Shard checks every entity that has rows in a shard, in any of the stores.
func (a *Audit) Shard(ctx context.Context, shard events.Shard) error {
	entities, err := a.entities(shard)
	if err != nil {
		return err
	}
	for e := range entities {
		if err := a.Check(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// entities returns what has rows in a shard.
func (a *Audit) entities(shard events.Shard) (map[Entity]struct{}, error) {
	found := map[Entity]struct{}{}
	user := func(id string) error {
		found[Entity{User: id}] = struct{}{}
		return nil
	}
	board := func(owner, id string) error {
		found[Entity{User: owner, Board: id, OfBoard: true}] = struct{}{}
		return nil
	}
	g, i, c := a.views[0], a.views[1], a.views[2]
	return found, errors.Join(
		graph.EachUser(g, shard, user), inbox.EachUser(i, shard, user), counters.EachUser(c, shard, user),
		graph.EachBoard(g, shard, board), inbox.EachBoard(i, shard, board), counters.EachBoard(c, shard, board),
	)
}
