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
	// Entity is the user or the board about which the stores disagree.
	Entity Entity
	// Check is the name of the check that failed: counts, mirror, feed, items or rows.
	Check string
	// Text describes the expected and the found value to people.
	Text string
	// Stores are the names of the stores that disagree. At least one of them is wrong.
	Stores []string
}

// String describes the finding to people in one line.
func (f Finding) String() string {
	return fmt.Sprintf("%v: %s: %s", f.Entity, f.Check, f.Text)
}

// Entity is the unit of an audit: a user or a board.
type Entity struct {
	User string
	// Board is a board of User if OfBoard is set; the empty id is the id of the default board. If
	// OfBoard is not set, the entity is the user.
	Board   string
	OfBoard bool
}

// String returns the name of the entity for people.
func (e Entity) String() string {
	if e.OfBoard {
		return fmt.Sprintf("board %q of %s", e.Board, e.User)
	}
	return "user " + e.User
}

// Limits limit what the check of an entity reads. 0 does not limit.
type Limits struct {
	// List is how many entries of a list are read. The length of a longer list is not compared.
	List int
	// Feed is how many entries of a feed are compared, beginning with the newest.
	Feed int
	// FeedTurns spreads the expensive checks over this many audits: those of feeds, and of the
	// other sides of list entries. FeedTurn, which is less than FeedTurns, selects the users that
	// this audit includes. If FeedTurns is 0, it includes all.
	FeedTurn, FeedTurns uint64
}

// isTurnOf reports whether this audit includes the expensive checks of a user.
func (l Limits) isTurnOf(user string) bool {
	return l.FeedTurns == 0 || xxh3.HashString(user)%l.FeedTurns == l.FeedTurn
}

// Audit compares the three stores at one common position at a time. Only one goroutine may use it.
// Close must be called.
type Audit struct {
	// Rest is called after each check, and after each part of a long one; it may be nil.
	Rest func(context.Context) error
	// Hold is for how long the views are held at one position, where the audit can continue at a
	// later one: between two checks, and while it looks up the other sides of a long list. If a
	// store is to be closed, they are released there at once. Default 10 s.
	Hold time.Duration
	// Checks is the number of entities that were checked.
	Checks uint64
	// Waited is how long the audit has waited for common positions.
	Waited time.Duration

	limits Limits
	stores []Viewer // graph, inbox, counters
	// views are open views of the stores, in the same order. openTime is when they were opened.
	views    []*projections.View
	openTime time.Time
	// heldPartitions are the partitions that all views hold. Users in others are not audited, nor
	// relations with them.
	heldPartitions events.Partitions
	graph          *graph.Queries
	inbox          *inbox.Queries
	counters       *counters.Queries

	// currentEntity is the entity that is checked. findings are those since the last call of
	// Findings.
	currentEntity Entity
	findings      []Finding
	// unmirrored are the parts of long lists whose other sides have not been looked up yet. They
	// are looked up after all other checks of the entity, because the audit may move to another
	// position meanwhile.
	unmirrored []listRest
}

// Open returns an audit of the three stores at the next position that all of them reach.
func Open(ctx context.Context, graphs, inboxes, counts Viewer, limits Limits) (*Audit, error) {
	a := &Audit{
		Hold:     10 * time.Second,
		limits:   limits,
		stores:   []Viewer{graphs, inboxes, counts},
		graph:    &graph.Queries{},
		inbox:    &inbox.Queries{},
		counters: &counters.Queries{},
	}
	return a, a.openViews(ctx)
}

// openViews opens views at the next common position.
func (a *Audit) openViews(ctx context.Context) (err error) {
	a.views, err = CommonViews(ctx, a.stores...)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}

	a.openTime = time.Now()
	a.heldPartitions = events.AllPartitions()
	for _, v := range a.views {
		held := v.Partitions()
		a.heldPartitions.Intersect(&held)
	}

	// Overwrite the queries in place: a walk through a list keeps a pointer to them, and must
	// continue with the new views.
	*a.graph = *graph.NewQueries(a.views[0])
	*a.inbox = *inbox.Query(a.views[1])
	*a.counters = *counters.NewQueries(a.views[2])
	return nil
}

// moveIfDue moves to the next common position if this one has been held for longer than Hold, or if
// a store is to be closed. The caller must not compare values from before the call with values from
// after it.
func (a *Audit) moveIfDue(ctx context.Context) error {
	if time.Since(a.openTime) < a.Hold && !a.isStoreClosing() {
		return nil
	}

	startTime := time.Now()
	err := a.Close()
	if err == nil {
		err = a.openViews(ctx)
	}
	a.Waited += time.Since(startTime)
	return err
}

// holds reports whether the stores hold the rows of a user.
func (a *Audit) holds(user string) bool {
	return a.heldPartitions.Has(events.ShardOf(user).Partition())
}

// Seq returns the sequence of the common position.
func (a *Audit) Seq() uint64 {
	seq := uint64(0)
	for _, v := range a.views {
		seq = max(seq, v.Cursor().Seq)
	}
	return seq
}

// Close closes the views.
func (a *Audit) Close() error {
	err := closeViews(a.views)
	a.views = nil
	return err
}

// Findings returns the findings since the last call.
func (a *Audit) Findings() []Finding {
	found := a.findings
	a.findings = nil
	return found
}

// Check checks an entity if the stores hold it. A disagreement becomes a finding, and so does a row
// that cannot be decoded. Check fails only if ctx ends or if a store cannot be read.
func (a *Audit) Check(ctx context.Context, e Entity) error {
	if err := a.moveIfDue(ctx); err != nil {
		return err
	}
	if !a.holds(e.User) {
		return nil
	}

	a.currentEntity = e
	a.Checks++
	a.unmirrored = a.unmirrored[:0]

	var err error
	if e.OfBoard {
		err = a.checkBoard(ctx, e.User, e.Board)
	} else {
		err = a.checkUser(ctx, e.User)
	}
	if err == nil {
		err = a.checkLaterMirrors(ctx)
	}

	if isCorruption(err) {
		a.addFinding("rows", []string{"graph", "inbox", "counters"}, "%v", err)
		err = nil
	}
	return errors.Join(err, a.rest(ctx))
}

// rest calls Rest, if there is one. It returns the error of ctx if there is none.
func (a *Audit) rest(ctx context.Context) error {
	if a.Rest == nil {
		return ctx.Err()
	}
	return a.Rest(ctx)
}

// isStoreClosing reports whether a store is to be closed. Closing it waits for our view.
func (a *Audit) isStoreClosing() bool {
	return slices.ContainsFunc(a.views, func(v *projections.View) bool {
		select {
		case <-v.Down():
			return true
		default:
			return false
		}
	})
}

// sleepUnlessClosing sleeps for d, but not longer than until a store is to be closed.
func (a *Audit) sleepUnlessClosing(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()

	// Without views, the channels stay nil, and receiving from a nil channel never succeeds.
	var down [3]<-chan struct{}
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

// isCorruption reports whether the error is about a row that no fold writes.
func isCorruption(err error) bool {
	return errors.Is(err, projections.ErrCorrupt) || errors.Is(err, events.ErrKeyID)
}

// addFinding adds a finding about the current entity. check is the value of [Finding.Check].
func (a *Audit) addFinding(check string, stores []string, format string, args ...any) {
	a.findings = append(a.findings, Finding{a.currentEntity, check, fmt.Sprintf(format, args...), stores})
}

// NextShard returns the first shard, at or after from, that is in a held partition and in which any
// of the stores has rows. It returns events.NumShards if there is none.
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
		if next == events.NumShards || a.heldPartitions.Has(next.Partition()) {
			return next, nil
		}

		// The store holds no user of this partition. What it has there are region rows of users
		// whose homes are in other partitions. Skip the partition.
		const shardsPerPartition = events.NumShards / events.NumPartitions
		from = (next/shardsPerPartition + 1) * shardsPerPartition
	}
}

// Shard checks every entity that has rows in a shard in any of the stores.
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

// entities returns the users and boards that have rows in a shard in any of the stores.
func (a *Audit) entities(shard events.Shard) (map[Entity]struct{}, error) {
	found := map[Entity]struct{}{}
	addUser := func(id string) error {
		found[Entity{User: id}] = struct{}{}
		return nil
	}
	addBoard := func(owner, id string) error {
		found[Entity{User: owner, Board: id, OfBoard: true}] = struct{}{}
		return nil
	}
	graphView := a.views[0]
	inboxView := a.views[1]
	countersView := a.views[2]
	return found, errors.Join(
		graph.EachUser(graphView, shard, addUser),
		inbox.EachUser(inboxView, shard, addUser),
		counters.EachUser(countersView, shard, addUser),
		graph.EachBoard(graphView, shard, addBoard),
		inbox.EachBoard(inboxView, shard, addBoard),
		counters.EachBoard(countersView, shard, addBoard),
	)
}
