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

// reactionsList is the kind of list in the page tokens of ListReactions. It never changes, and no
// other list has it.
const reactionsList = 0xf9

// ValidateListReactions checks the user and the kind.
func ValidateListReactions(c *request.Checker, req *skeinv1.ListReactionsRequest) {
	c.RequireID("user_id", req.GetUserId())
	if !events.IsReaction(req.GetKind()) {
		c.Refuse("kind", "must be 1 to 32 bytes of a-z, 0-9 and _; empty means like")
	}
}

// ListReactions returns a page of the items to which a user reacted with a kind.
func (s *Service) ListReactions(
	ctx context.Context, req *skeinv1.ListReactionsRequest, info *call.Info,
) (*skeinv1.ListReactionsResponse, error) {
	kind := events.ReactionOf(req.GetKind())
	list := pagetoken.NewListID(reactionsList, req.GetUserId(), kind)
	start, err := s.StartPage(req, list)
	if err != nil {
		return nil, err
	}
	r, err := s.OpenCounters(ctx, info, start.AtLeast, start.Token)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	if err := info.ReserveLongPage(ctx, start.Size); err != nil {
		return nil, err
	}
	var items []counters.ReactedItem
	var next counters.PageCursor
	err = views.RunUntilResolved(ctx, func() (err error) {
		items, next, err = r.Reactions(ctx, req.GetUserId(), kind, counters.PageCursor(start.Cursor), start.Size)
		return err
	}, &r.StoreView)
	if err != nil {
		return nil, start.Token.TokenError(err)
	}

	entries := make([]skeinv1.ReactionEntry, len(items)) // one allocation for all items
	times := call.NewTimes(len(items))
	res := &skeinv1.ListReactionsResponse{Entries: make([]*skeinv1.ReactionEntry, len(items)), Position: r.Position}
	for i, item := range items {
		entries[i].ItemId = item.Item
		entries[i].ReactTime = times.Next(item.Since)
		res.Entries[i] = &entries[i]
	}
	if next != nil {
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: list, Position: views.NextPagePosition(&r.StoreView), Cursor: next})
	}
	return res, nil
}
