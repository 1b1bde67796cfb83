package eventservice

import (
	"context"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Projections ignore a backfill of a closed source, one about a deleted user, and one whose offset is not above the highest of its source
// and kind. What the stores of this process show about that is final: a source is never opened again, and an offset never falls. So the
// first two are refused. The third is taken and named as a repeat, because a retry of a call whose outcome is unknown looks the same.
// What other calls publish at the same moment is not known here.

// judgeBackfills returns the refusals of backfills that cannot count, and the indexes of those that repeat what the log has.
func (s *Service) judgeBackfills(ctx context.Context, evs []events.CheckedEvent) (refused []events.Rejection, repeats []int32, err error) {
	var backfills []*events.CheckedEvent
	for i := range evs {
		if evs[i].Backfill {
			backfills = append(backfills, &evs[i])
		}
	}
	if len(backfills) == 0 {
		return nil, nil, nil
	}
	c := backfillChecker{Service: s, highest: map[sourceAndKind]uint64{}, closed: map[string]bool{}}

	// The offsets come first, because for a new source they wait until the stores have caught up.
	for _, ev := range backfills {
		if err := c.readHighest(ctx, sourceAndKind{ev.Source, ev.Kind}); err != nil {
			return nil, nil, err
		}
	}
	if err := c.readGraph(backfills); err != nil {
		return nil, nil, err
	}

	for _, ev := range backfills {
		if r := c.refusal(ev); r != nil {
			refused = append(refused, *r)
			continue
		}
		if ev.Offset <= c.highest[sourceAndKind{ev.Source, ev.Kind}] {
			repeats = append(repeats, int32(ev.Index))
		}
	}
	return refused, repeats, nil
}

type sourceAndKind struct {
	source string
	kind   events.Kind
}

// backfillChecker has what the stores show about the backfills of one call.
type backfillChecker struct {
	*Service
	highest map[sourceAndKind]uint64
	closed  map[string]bool
	deleted map[string]bool
}

// readHighest reads the highest offset of a source and kind. If a store shows none, it may be behind: readHighest then waits until the
// store has what was in the log, and reads again. What cannot be read counts as 0, so it refuses nothing.
func (c *backfillChecker) readHighest(ctx context.Context, key sourceAndKind) error {
	store := c.storeOf(key.kind)
	if _, known := c.highest[key]; known || store == nil {
		return nil
	}
	head := c.Hub.Head()
	offset, at, err := highestOffset(store, key)
	if err != nil {
		return err
	}
	if offset == 0 && at < head && !store.Rebuilding() {
		waiting, cancel := views.BoundWait(ctx, c.Wait)
		waitErr := store.WaitFor(waiting, head)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if waitErr == nil {
			if offset, _, err = highestOffset(store, key); err != nil {
				return err
			}
		}
	}
	c.highest[key] = offset
	return nil
}

// highestOffset returns the highest offset that a store shows, and the sequence that it has folded. A store that is stopped shows nothing.
func highestOffset(projection *views.Store, key sourceAndKind) (offset, seq uint64, err error) {
	view, err := projection.View()
	if err != nil {
		return 0, 0, nil // events can be published while a projection is down
	}
	defer func() { _ = view.Close() }() // it was only read
	offset, err = store.HighestOffset(view, key.kind, key.source)
	return offset, view.Cursor().Seq, err
}

// storeOf returns a store that folds a kind of backfill, or nil.
func (c *backfillChecker) storeOf(kind events.Kind) *views.Store {
	for _, store := range []*views.Store{c.Graph, c.Counters, c.Seen} {
		if store != nil && slices.Contains(store.Projection().Kinds(), kind) {
			return store
		}
	}
	return nil
}

// readGraph reads which sources are closed and which users were deleted. The graph knows that for all kinds.
func (c *backfillChecker) readGraph(backfills []*events.CheckedEvent) error {
	view, err := c.Graph.View()
	if err != nil {
		return nil // events can be published while a projection is down
	}
	defer func() { _ = view.Close() }() // it was only read

	var users []string
	listed := map[string]bool{"": true}
	for _, ev := range backfills {
		if _, known := c.closed[ev.Source]; !known {
			if c.closed[ev.Source], err = store.BackfillsClosed(view, ev.Source); err != nil {
				return err
			}
		}
		for _, user := range []string{ev.User, ev.Peer} {
			if !listed[user] {
				listed[user] = true
				users = append(users, user)
			}
		}
	}
	c.deleted, err = graph.DeletedUsers(view, users)
	return err
}

// refusal returns why a backfill can never count, or nil.
func (c *backfillChecker) refusal(ev *events.CheckedEvent) *events.Rejection {
	if c.closed[ev.Source] {
		return &events.Rejection{
			Index: ev.Index, Reason: skeinv1.Reason_REASON_INVALID_BACKFILL, Field: "source",
			Message: fmt.Sprintf("source %q is closed: a backfill_closed ended its backfills, or all, and only live events count since", ev.Source),
		}
	}
	for _, user := range []string{ev.User, ev.Peer} {
		if c.deleted[user] {
			return &events.Rejection{
				Index: ev.Index, Reason: skeinv1.Reason_REASON_INVALID_BACKFILL, Field: ev.Kind.String(),
				Message: fmt.Sprintf("%s is a backfill about %q, who was deleted: only live events about a deleted user count", ev.Kind, user),
			}
		}
	}
	return nil
}
