package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// Entity is the user or board about which the stores disagree.
	Entity Entity
	// Check names the check that failed: counts, mirror, feed, items or rows.
	Check string
	// Text has the expected and the found value, for people.
	Text string
	// Stores are the names of the stores that disagree. At least one of them is wrong.
	Stores []string
}

// String returns the finding as one line for people.
func (f Finding) String() string { return fmt.Sprintf("%v: %s: %s", f.Entity, f.Check, f.Text) }

// Entity is the unit of an audit: a user or a board.
type Entity struct {
	User string
	// Board is a board of User, if OfBoard is set; empty means the default board.
	Board   string
	OfBoard bool
}

// String names the entity for people.
func (e Entity) String() string {
	if e.OfBoard {
		return fmt.Sprintf("board %q of %s", e.Board, e.User)
	}
	return "user " + e.User
}

// Limits bound what one check of an entity reads; 0 means everything.
type Limits struct {
	// List is the number of entries that are read of a list. The length of a longer list is not compared.
	List int
	// Feed is the number of the newest entries of a feed that are compared.
	Feed int
	// Turns spreads what is expensive over so many audits: feeds, and the other sides of the entries of lists. Turn, below Turns, says
	// which part of the users comes in this one. With 0 turns all of it comes.
	Turn, Turns uint64
}

// has reports whether it is the turn of a user.
func (l Limits) has(user string) bool { return l.Turns == 0 || xxh3.HashString(user)%l.Turns == l.Turn }

// Audit compares the three stores at one common position. It belongs to one goroutine, and must be closed.
type Audit struct {
	// Rest is called after each check, and after each piece of a long one; nil disables it.
	Rest func(context.Context) error
	// Hold is the longest time for which one position is held, where the audit can continue at another: between two checks, and in the
	// walk over the other sides of a long list. It is given up there at once when a store is to be closed. Default 10 s.
	Hold time.Duration
	// Checks is the number of entities that were checked, Waited the time that the audit has waited for common positions.
	Checks uint64
	Waited time.Duration

	limits Limits
	stores []Viewer
	views  []*projections.View
	opened time.Time // of the views
	// held are the partitions that all views have. Others are not audited, nor what is between them and these.
	held     events.Partitions
	graph    *graph.Queries
	inbox    *inbox.Queries
	counters *counters.Queries

	entity   Entity
	findings []Finding
	// later are the rests of long lists. Their other sides are looked up last, since that may move to another position.
	later []rest
}

// Open returns an audit of the stores at their next common position.
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
	a.opened, a.held = time.Now(), events.AllPartitions()
	for _, v := range a.views {
		held := v.Partitions()
		a.held.Intersect(&held)
	}
	// The queries are replaced in place: a walk over a list holds pointers to them, and continues at the new position.
	*a.graph, *a.inbox, *a.counters = *graph.NewQueries(a.views[0]), *inbox.Query(a.views[1]), *counters.NewQueries(a.views[2])
	return nil
}

// move goes to the next common position if this one was held for longer than Hold, or a store is to be closed. The caller must not compare
// values from before with values from after.
func (a *Audit) move(ctx context.Context) error {
	if time.Since(a.opened) < a.Hold && !a.down() {
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

// holds reports whether the stores have the rows of a user.
func (a *Audit) holds(user string) bool { return a.held.Has(events.ShardOf(user).Partition()) }

// Seq returns the sequence of the common position.
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

// Findings returns the findings since the last call.
func (a *Audit) Findings() []Finding {
	found := a.findings
	a.findings = nil
	return found
}

// Check checks an entity, if the stores hold it. A disagreement becomes a finding, and so does a corrupt row. Check returns only errors of
// the context and of stores that do not answer.
func (a *Audit) Check(ctx context.Context, e Entity) error {
	if err := a.move(ctx); err != nil {
		return err
	}
	if !a.holds(e.User) {
		return nil
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

// down reports whether a store is to be closed, which waits for its view.
func (a *Audit) down() bool {
	return slices.ContainsFunc(a.views, func(v *projections.View) bool {
		select {
		case <-v.Down():
			return true
		default:
			return false
		}
	})
}

// pause waits, but for no store that is to be closed.
func (a *Audit) pause(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	var down [3]<-chan struct{} // nil blocks
	for i, v := range a.views {
		down[i] = v.Down()
	}
	select {
	case <-timer.C:
	case <-down[0]:
	case <-down[1]:
	case <-down[2]:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// corrupt reports whether an error is about a row that no fold writes.
func corrupt(err error) bool {
	return errors.Is(err, projections.ErrCorrupt) || errors.Is(err, events.ErrKeyID)
}

func (a *Audit) find(check string, stores []string, format string, args ...any) {
	a.findings = append(a.findings, Finding{a.entity, check, fmt.Sprintf(format, args...), stores})
}

// NextShard returns the first shard of a partition that is held, at or after from, in which any of the stores has rows; events.NumShards
// means there is none.
func (a *Audit) NextShard(from events.Shard) (events.Shard, error) {
	for {
		next := events.Shard(events.NumShards)
		for _, v := range a.views {
			shard, err := projections.NextShard(v, from, next)
			if err != nil {
				return from, err
			}
			next = min(next, shard)
		}
		if next == events.NumShards || a.held.Has(next.Partition()) {
			return next, nil
		}
		// Rows of regions, whose homes are elsewhere: on to the next partition.
		const shards = events.NumShards / events.NumPartitions
		from = (next/shards + 1) * shards
	}
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

// entities returns the users and boards that have rows in a shard, in any of the stores.
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
