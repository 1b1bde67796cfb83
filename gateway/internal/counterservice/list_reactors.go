package counterservice

import (
	"context"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/counters"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// maxReactorReads is how many parts of the list ListReactors reads for one page at most. It reads
// more than one if users of the first part are left out because of blocks.
const maxReactorReads = 8

// reactorsList is the kind of list in the page tokens of ListReactors. It never changes, and no
// other list has it.
const reactorsList = 0xf8

// ValidateListReactors checks the ids and the kind.
func ValidateListReactors(c *request.Checker, req *skeinv1.ListReactorsRequest) {
	c.RequireID("item_id", req.GetItemId())
	if req.GetViewerId() != "" {
		c.RequireID("viewer_id", req.GetViewerId())
	}
	if !events.IsReaction(req.GetKind()) || events.IsPrivateReaction(req.GetKind()) {
		c.Refuse("kind",
			"must be 1 to 32 bytes of a-z, 0-9 and _, and not begin with _: private kinds have no list of reactors; empty means like")
	}
}

// ListReactors returns a page of the users who reacted to an item with a kind.
//
// The counters have the list, and the graph says which users block the viewer or are blocked by the
// viewer. In a cluster, a node that holds the viewer's edges in the graph answers a call with a
// viewer, and asks another node for the list of the item. A call without a viewer needs no edges,
// so any node answers it.
func (s *Service) ListReactors(
	ctx context.Context, req *skeinv1.ListReactorsRequest, info *call.Info,
) (*skeinv1.ListReactorsResponse, error) {
	kind := events.ReactionOf(req.GetKind())
	list := pagetoken.NewListID(reactorsList, req.GetItemId(), kind, req.GetViewerId())
	start, err := s.StartPage(req, list)
	if err != nil {
		return nil, err
	}
	r, err := s.OpenCounters(ctx, info, start.AtLeast, start.Token)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	opened := []*views.StoreView{&r.StoreView}
	var relations *views.Graph // nil means that all reactors are listed
	if req.GetViewerId() != "" {
		relations, err = s.OpenGraph(ctx, info, start.AtLeast, start.Token)
		if err != nil {
			return nil, err
		}
		defer relations.Close()
		opened = append(opened, &relations.StoreView)
	}

	// This comes after both stores were opened, because a call may not wait for a store while it
	// holds a place for a long page.
	if err := info.ReserveLongPage(ctx, start.Size); err != nil {
		return nil, err
	}

	// If users are left out because of blocks, continue with the next part of the list until the
	// page is full. The number of reads is limited, because the viewer may have blocks with all
	// users of the list. At the limit, the page has fewer entries, and a token for the rest.
	var visible []counters.Reactor
	var total int64
	next := counters.PageCursor(start.Cursor)
	for reads := 0; reads < maxReactorReads && len(visible) < start.Size; reads++ {
		var part counters.ReactorPart
		after := next // the query may run several times, and each run overwrites next
		err = views.RunUntilResolved(ctx, func() (err error) {
			part, next, err = r.Reactors(ctx, req.GetItemId(), kind, after, start.Size-len(visible))
			return err
		}, &r.StoreView)
		if err != nil {
			return nil, start.Token.TokenError(err)
		}

		visible, err = appendVisible(ctx, visible, part.Reactors, relations, req.GetViewerId())
		if err != nil {
			return nil, err
		}
		total = part.Total
		if next == nil {
			break
		}
	}

	entries := make([]skeinv1.ReactorEntry, len(visible)) // one allocation for all reactors
	times := call.NewTimes(len(visible))
	res := &skeinv1.ListReactorsResponse{
		Entries:   make([]*skeinv1.ReactorEntry, len(visible)),
		TotalSize: call.Count(total),
		Position:  views.OldestPosition(opened...),
	}
	for i, reactor := range visible {
		entries[i].UserId = reactor.User
		entries[i].ReactTime = times.Next(reactor.Since)
		res.Entries[i] = &entries[i]
	}
	if next != nil {
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{
			List: list, Position: views.NextPagePosition(opened...), Cursor: next,
		})
	}
	return res, nil
}

// appendVisible appends to visible the reactors who neither block the viewer nor are blocked by the
// viewer. If relations is nil, it appends all of them.
func appendVisible(
	ctx context.Context, visible, reactors []counters.Reactor, relations *views.Graph, viewer string,
) ([]counters.Reactor, error) {
	if relations == nil {
		return append(visible, reactors...), nil
	}
	for i, reactor := range reactors {
		if err := call.CheckCanceled(ctx, i); err != nil {
			return nil, err
		}
		relation, err := relations.Visibility(viewer, reactor.User)
		if err != nil {
			return nil, err
		}
		if !relation.Blocked {
			visible = append(visible, reactor)
		}
	}
	return visible, nil
}
