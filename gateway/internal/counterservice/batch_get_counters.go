package counterservice

import (
	"context"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/counters"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidateBatchGetCounters checks by hand what the rules of the proto say, because this call is
// frequent and evaluating the rules is slow.
func ValidateBatchGetCounters(req *skeinv1.BatchGetCountersRequest) []apierror.Violation {
	var c request.Checker
	c.RequireLength("keys", len(req.GetKeys()), 1)
	c.RequirePosition(req.GetAtLeast())
	c.RequireAtMost("reaction_kinds", len(req.GetReactionKinds()), counters.MaxKinds)
	if len(c.Violations) > 0 {
		return c.Violations // before the items of the lists, which may be too many to check
	}

	for i, kind := range req.GetReactionKinds() {
		if kind == "" || !events.IsReaction(kind) || events.IsPrivateReaction(kind) {
			c.RefuseAt("reaction_kinds", i, "",
				"must be 1 to 32 bytes of a-z, 0-9 and _, and not begin with _: private kinds are not counted")
		}
	}
	for i, k := range req.GetKeys() {
		switch t := k.GetTarget().(type) {
		case *skeinv1.CounterKey_UserId:
			c.RequireIDAt("keys", i, ".user_id", t.UserId)
		case *skeinv1.CounterKey_Board:
			c.RequireBoardAt("keys", i, ".board", t.Board)
		case *skeinv1.CounterKey_ItemId:
			c.RequireIDAt("keys", i, ".item_id", t.ItemId)
		default:
			c.RefuseAt("keys", i, ".target", "must be given: user_id, board or item_id")
		}
	}
	return c.Violations
}

// BatchGetCounters returns the counts of each key, in the order of the request.
func (s *Service) BatchGetCounters(
	ctx context.Context, req *skeinv1.BatchGetCountersRequest, info *call.Info,
) (*skeinv1.BatchGetCountersResponse, error) {
	atLeast, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenCounters(ctx, info, atLeast)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	opened := []*views.StoreView{&r.StoreView}

	var relations *views.Graph // nil if no key needs it
	if needsGraph(req.GetKeys()) {
		relations, err = s.OpenGraph(ctx, info, atLeast)
		if err != nil {
			return nil, err
		}
		defer relations.Close()
		opened = append(opened, &relations.StoreView)
	}

	kinds := make([]string, len(req.GetReactionKinds()))
	for i, name := range req.GetReactionKinds() {
		kinds[i] = events.ReactionOf(name)
	}
	counts := make([]skeinv1.Counters, len(req.GetKeys())) // one allocation for all keys
	res := &skeinv1.BatchGetCountersResponse{
		Counters: make([]*skeinv1.Counters, len(counts)),
		Position: views.OldestPosition(opened...),
	}
	for i, key := range req.GetKeys() {
		if err := call.CheckCanceled(ctx, i); err != nil {
			return nil, err
		}
		res.Counters[i] = &counts[i]
		if err := fillCounts(r, relations, key, kinds, &counts[i]); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// needsGraph reports whether any of the keys is a user or board, because the graph counts their
// followers and boards.
func needsGraph(keys []*skeinv1.CounterKey) bool {
	return slices.ContainsFunc(keys, func(k *skeinv1.CounterKey) bool {
		_, isItem := k.GetTarget().(*skeinv1.CounterKey_ItemId)
		return !isItem
	})
}

// fillCounts sets in to the counts that apply to the key. kinds are the kinds of reactions that the
// request asks for.
func fillCounts(
	r *views.Counters, relations *views.Graph, key *skeinv1.CounterKey, kinds []string, to *skeinv1.Counters,
) error {
	switch t := key.GetTarget().(type) {
	case *skeinv1.CounterKey_UserId:
		counts, err := r.UserCounts(t.UserId)
		if err != nil {
			return err
		}
		follows, err := relations.UserCounts(t.UserId)
		if err != nil {
			return err
		}
		to.PinCount = call.Count(counts.Pins)
		to.PlayCount = counts.Plays
		to.BoardCount = call.Count(follows.Boards)
		to.FollowerCount = call.Count(follows.Followers + follows.FollowersImplicit)

	case *skeinv1.CounterKey_Board:
		pins, err := r.BoardPins(t.Board.GetOwnerId(), t.Board.GetBoardId())
		if err != nil {
			return err
		}
		follows, err := relations.BoardCounts(t.Board.GetOwnerId(), t.Board.GetBoardId())
		if err != nil {
			return err
		}
		to.PinCount = call.Count(pins)
		to.FollowerCount = call.Count(follows.Appears)

	case *skeinv1.CounterKey_ItemId:
		counts, err := r.ItemCounts(t.ItemId)
		if err != nil {
			return err
		}
		to.PlayCount = counts.Plays
		to.RepinCount = call.Count(counts.Repins)
		reactions, err := r.ReactionCounts(t.ItemId, counts, kinds)
		if err != nil {
			return err
		}
		to.Reactions = make([]*skeinv1.ReactionCount, len(reactions))
		for i, reaction := range reactions {
			to.Reactions[i] = &skeinv1.ReactionCount{
				Kind: events.ReactionName(reaction.Kind), Count: call.Count(reaction.Count),
			}
		}
	}
	return nil
}
