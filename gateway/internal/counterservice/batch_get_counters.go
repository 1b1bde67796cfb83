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

// ValidateBatchGetCounters says by hand what the rules of the proto say, because this call is frequent.
func ValidateBatchGetCounters(req *skeinv1.BatchGetCountersRequest) []apierror.Violation {
	var c request.Checker
	c.Length("keys", len(req.GetKeys()), 1)
	c.AtLeast(req.GetAtLeast())
	c.AtMostItems("reaction_kinds", len(req.GetReactionKinds()), counters.MaxKinds)
	if len(c.Found) > 0 {
		return c.Found
	}
	for i, kind := range req.GetReactionKinds() {
		if kind == "" || !events.IsReaction(kind) || events.IsPrivateReaction(kind) {
			c.FoundAt("reaction_kinds", i, "", "must be 1 to 32 bytes of a-z, 0-9 and _, and not begin with _: private kinds are not counted")
		}
	}
	for i, k := range req.GetKeys() {
		switch t := k.GetTarget().(type) {
		case *skeinv1.CounterKey_UserId:
			c.IDAt("keys", i, ".user_id", t.UserId)
		case *skeinv1.CounterKey_Board:
			c.BoardAt("keys", i, ".board", t.Board)
		case *skeinv1.CounterKey_ItemId:
			c.IDAt("keys", i, ".item_id", t.ItemId)
		default:
			c.FoundAt("keys", i, ".target", "must be given: user_id, board or item_id")
		}
	}
	return c.Found
}

// BatchGetCounters returns the counts of each key, in order.
func (s *Service) BatchGetCounters(
	ctx context.Context, req *skeinv1.BatchGetCountersRequest, x *call.Info,
) (*skeinv1.BatchGetCountersResponse, error) {
	least, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenCounters(ctx, x, least)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	position := r.Position
	var relations *views.Graph
	if countsRelations(req.GetKeys()) {
		if relations, err = s.openBeside(ctx, x, least); err != nil {
			return nil, err
		}
		defer relations.Close()
		if relations.At.Seq < r.At.Seq {
			position = relations.Position
		}
	}
	kinds := make([]string, len(req.GetReactionKinds()))
	for i, name := range req.GetReactionKinds() {
		kinds[i] = events.ReactionOf(name)
	}
	made := make([]skeinv1.Counters, len(req.GetKeys()))
	res := &skeinv1.BatchGetCountersResponse{Counters: make([]*skeinv1.Counters, len(made)), Position: position}
	for i, key := range req.GetKeys() {
		if err := call.Poll(ctx, i); err != nil {
			return nil, err
		}
		res.Counters[i] = &made[i]
		if err := count(r, key, kinds, relations, &made[i]); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// countsRelations reports whether any of some keys asks for followers or boards, which the graph counts.
func countsRelations(keys []*skeinv1.CounterKey) bool {
	return slices.ContainsFunc(keys, func(k *skeinv1.CounterKey) bool {
		_, item := k.GetTarget().(*skeinv1.CounterKey_ItemId)
		return !item
	})
}

// openBeside returns the graph for an answer that another store gives as well. The lag is that of the store that is further behind.
func (s *Service) openBeside(ctx context.Context, x *call.Info, demands ...views.Demand) (*views.Graph, error) {
	if x == nil {
		return s.Open(ctx, nil, demands...)
	}
	lag := x.Lag
	r, err := s.Open(ctx, x, demands...)
	x.Lag = max(x.Lag, lag)
	return r, err
}

// count fills in what applies to a key. kinds are the kinds of reactions that the caller names.
func count(r *views.Counters, key *skeinv1.CounterKey, kinds []string, relations *views.Graph, to *skeinv1.Counters) error {
	switch t := key.GetTarget().(type) {
	case *skeinv1.CounterKey_UserId:
		c, err := r.UserCounts(t.UserId)
		if err != nil {
			return err
		}
		of, err := relations.UserCounts(t.UserId)
		if err != nil {
			return err
		}
		to.PinCount, to.BoardCount, to.PlayCount = call.Count(c.Pins), call.Count(of.Boards), c.Plays
		to.FollowerCount = call.Count(of.Followers + of.FollowersImplicit)
	case *skeinv1.CounterKey_Board:
		pins, err := r.BoardPins(t.Board.GetOwnerId(), t.Board.GetBoardId())
		if err != nil {
			return err
		}
		of, err := relations.BoardCounts(t.Board.GetOwnerId(), t.Board.GetBoardId())
		if err != nil {
			return err
		}
		to.PinCount, to.FollowerCount = call.Count(pins), call.Count(of.Appears)
	case *skeinv1.CounterKey_ItemId:
		c, err := r.ItemCounts(t.ItemId)
		if err != nil {
			return err
		}
		to.PlayCount, to.RepinCount = c.Plays, call.Count(c.Repins)
		reactions, err := r.ReactionCounts(t.ItemId, c, kinds)
		if err != nil {
			return err
		}
		to.Reactions = make([]*skeinv1.ReactionCount, len(reactions))
		for i, reaction := range reactions {
			to.Reactions[i] = &skeinv1.ReactionCount{Kind: events.ReactionName(reaction.Kind), Count: call.Count(reaction.Count)}
		}
	}
	return nil
}
