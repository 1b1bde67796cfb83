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

// A backfill is an event of the past, from an import. It names its source, and an offset that rises
// per source and kind. The projections ignore three sorts of backfills: those of a source that was
// closed (backfill_closed), those about a deleted user, and those whose offset is not above the
// highest of their source and kind.
//
// Publish rejects the first two. What a store shows about them is final, because no source is
// opened again. It accepts the third and reports it as a repeat, because a client that retries a
// call with an unknown outcome sends the same events. Calls at the same moment do not see each
// other's backfills.

// checkBackfills returns the rejections of backfills that cannot count, and the indexes of those
// that repeat what the log has.
func (s *Service) checkBackfills(ctx context.Context, evs []events.CheckedEvent) (refused []events.Rejection, repeats []int32, err error) {
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

// backfillChecker has what the stores know about the backfills of one call: the highest offsets,
// the closed sources and the deleted users.
type backfillChecker struct {
	*Service
	highest map[sourceAndKind]uint64
	closed  map[string]bool
	deleted map[string]bool
}

// readHighest reads the highest offset of a source and kind. If the store has none, it may only be
// behind, so readHighest waits until the store contains the present end of the log, and reads
// again. An offset that cannot be read counts as 0, and then no backfill is a repeat.
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
	// A store that is being rebuilt may be hours behind, so there is no wait for it.
	if offset == 0 && at < head && !store.Rebuilding() {
		waiting, cancel := views.BoundWait(ctx, c.Wait)
		waitErr := store.WaitFor(waiting, head)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// If the store did not get there in time, the offset counts as 0. Publish works while a
		// projection is behind, and at worst does not report a repeat.
		if waitErr == nil {
			offset, _, err = highestOffset(store, key)
			if err != nil {
				return err
			}
		}
	}
	c.highest[key] = offset
	return nil
}

// highestOffset returns the highest offset that a store has, and the sequence of the log that it
// has reached. Both are 0 if the store is stopped.
func highestOffset(projection *views.Store, key sourceAndKind) (offset, seq uint64, err error) {
	view, err := projection.View()
	if err != nil {
		return 0, 0, nil // Publish works while a projection is down
	}
	defer func() { _ = view.Close() }() // it was only read
	offset, err = store.HighestOffset(view, key.kind, key.source)
	return offset, view.Cursor().Seq, err
}

// storeOf returns a store that folds backfills of a kind, or nil if this process has none.
func (c *backfillChecker) storeOf(kind events.Kind) *views.Store {
	for _, store := range []*views.Store{c.Graph, c.Counters, c.Seen} {
		if store != nil && slices.Contains(store.Projection().Kinds(), kind) {
			return store
		}
	}
	return nil
}

// readGraph reads which sources are closed and which users were deleted. It asks the graph, which
// knows both for all kinds of events.
func (c *backfillChecker) readGraph(backfills []*events.CheckedEvent) error {
	view, err := c.Graph.View()
	if err != nil {
		return nil // Publish works while a projection is down
	}
	defer func() { _ = view.Close() }() // it was only read

	var users []string
	listed := map[string]bool{"": true} // an event without a peer
	for _, ev := range backfills {
		if _, known := c.closed[ev.Source]; !known {
			c.closed[ev.Source], err = store.BackfillsClosed(view, ev.Source)
			if err != nil {
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
