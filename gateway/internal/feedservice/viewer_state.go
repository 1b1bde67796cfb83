package feedservice

import (
	"context"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/graphservice"
	"github.com/skein-feed/skein/gateway/internal/metrics"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/seen"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidateBatchGetViewerState checks in code what the validation rules in the proto file say. This
// is faster than evaluating the rules, and a product makes this call for each page that it shows.
func ValidateBatchGetViewerState(req *skeinv1.BatchGetViewerStateRequest) []apierror.Violation {
	var c request.Checker
	c.RequireLength("keys", len(req.GetKeys()), 1)
	c.RequirePosition(req.GetAtLeast())
	if len(c.Violations) > 0 {
		return c.Violations
	}
	if req.GetWindowMonths() < 0 {
		c.Refuse("window_months", "is %d: must be 0 or more", req.GetWindowMonths())
	}
	c.RequireID("viewer_id", req.GetViewerId())
	for i, k := range req.GetKeys() {
		switch t := k.GetTarget().(type) {
		case *skeinv1.ViewerStateKey_Pin:
			c.RequirePinAt("keys", i, ".pin", t.Pin)
		case *skeinv1.ViewerStateKey_ItemId:
			c.RequireIDAt("keys", i, ".item_id", t.ItemId)
		default:
			c.RefuseAt("keys", i, ".target", "must be given: pin or item_id")
		}
	}
	return c.Violations
}

// BatchGetViewerState returns how the viewer relates to each key (a pin or an item), in the order
// of the request.
//
// Four stores answer, each from a view of its own. The inbox answers first, because its pins say
// which items and boards to ask the other three stores about. Each view contains what the call
// demands, and the position of the answer is the oldest of the four.
func (s *Service) BatchGetViewerState(
	ctx context.Context, req *skeinv1.BatchGetViewerStateRequest, info *call.Info,
) (*skeinv1.BatchGetViewerStateResponse, error) {
	atLeast, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	v, err := s.openViewerStores(ctx, info, atLeast)
	if err != nil {
		return nil, err
	}
	defer v.close()

	viewer := req.GetViewerId()
	keys := req.GetKeys()
	if err := info.ReserveLongPage(ctx, len(keys)); err != nil {
		return nil, err
	}
	states := make([]skeinv1.ViewerState, len(keys))
	res := &skeinv1.BatchGetViewerStateResponse{
		States: make([]*skeinv1.ViewerState, len(keys)), Position: views.OldestPosition(v.opened...),
	}
	for i := range states {
		res.States[i] = &states[i]
	}

	// fillItems comes first, because the other steps ask about the items. A step that may need
	// answers of other nodes runs in RunUntilResolved, which repeats only this step. fillSeen and
	// fillUserFollows read only rows of the viewer, which are on this node.
	var boards []string
	err = views.RunUntilResolved(ctx, func() (err error) {
		boards, err = v.fillItems(ctx, keys, states)
		return err
	}, &v.pins.StoreView)
	if err != nil {
		return nil, err
	}
	err = views.RunUntilResolved(ctx, func() error { return v.fillReactions(ctx, viewer, states) }, &v.counters.StoreView)
	if err != nil {
		return nil, err
	}
	if err := v.fillSeen(req, states, s.metrics); err != nil {
		return nil, err
	}
	err = views.RunUntilResolved(ctx, func() error {
		return v.fillBoardFollows(ctx, viewer, keys, boards, states)
	}, &v.relations.StoreView)
	if err != nil {
		return nil, err
	}
	return res, v.fillUserFollows(viewer, keys, states)
}

// viewerStores has the stores that BatchGetViewerState reads, each at one position.
type viewerStores struct {
	pins      *views.Inbox
	relations *views.Graph
	seen      *views.Seen
	counters  *views.Counters
	// opened has those of the four stores that are open, for close.
	opened []*views.StoreView
}

// openViewerStores opens all four stores. The caller must close the result. After an error, no
// store is open.
func (s *Service) openViewerStores(ctx context.Context, info *call.Info, atLeast views.Demand) (*viewerStores, error) {
	v := &viewerStores{}
	if err := v.open(ctx, s, info, atLeast); err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

// open opens the stores one after the other. If one fails, the stores before it stay open, and the
// caller must close v.
func (v *viewerStores) open(ctx context.Context, s *Service, info *call.Info, atLeast views.Demand) (err error) {
	v.pins, err = s.OpenInbox(ctx, info, atLeast)
	if err != nil {
		return err
	}
	v.opened = append(v.opened, &v.pins.StoreView)
	v.relations, err = s.OpenGraph(ctx, info, atLeast)
	if err != nil {
		return err
	}
	v.opened = append(v.opened, &v.relations.StoreView)
	v.seen, err = s.OpenSeen(ctx, info, atLeast)
	if err != nil {
		return err
	}
	v.opened = append(v.opened, &v.seen.StoreView)
	v.counters, err = s.OpenCounters(ctx, info, atLeast)
	if err != nil {
		return err
	}
	v.opened = append(v.opened, &v.counters.StoreView)
	return nil
}

func (v *viewerStores) close() {
	for _, o := range v.opened {
		o.Close()
	}
}

// fillItems sets the item of each state, and returns a board for each key: the board of the pin, or
// "" if the key names an item or a pin that does not live. The item of a pin that does not live
// stays empty, and the functions below skip such a key, except fillUserFollows.
func (v *viewerStores) fillItems(ctx context.Context, keys []*skeinv1.ViewerStateKey, states []skeinv1.ViewerState) (boards []string, err error) {
	boards = make([]string, len(keys))
	for i, key := range keys {
		if err := call.CheckCanceled(ctx, i); err != nil {
			return nil, err
		}
		name := key.GetPin()
		if name == nil {
			states[i].ItemId = key.GetItemId()
			continue
		}
		p, lives, err := v.pins.Pin(name.GetOwnerId(), name.GetPinId())
		if err != nil {
			return nil, err
		}
		if lives {
			states[i].ItemId = p.Item
			boards[i] = p.Board
		}
	}
	return boards, nil
}

// fillReactions sets the kinds of the viewer's reactions to each item.
func (v *viewerStores) fillReactions(ctx context.Context, viewer string, states []skeinv1.ViewerState) error {
	for i := range states {
		if err := call.CheckCanceled(ctx, i); err != nil {
			return err
		}
		if states[i].ItemId == "" {
			continue
		}
		kinds, err := v.counters.OwnReactions(viewer, states[i].ItemId)
		if err != nil {
			return err
		}
		states[i].Reactions = make([]string, len(kinds))
		for k, kind := range kinds {
			states[i].Reactions[k] = events.ReactionName(kind)
		}
	}
	return nil
}

// fillSeen sets which items the viewer has seen, by the same rules as FilterSeen, which items were
// served to the viewer, and which the viewer hides.
func (v *viewerStores) fillSeen(req *skeinv1.BatchGetViewerStateRequest, states []skeinv1.ViewerState, m *metrics.Metrics) error {
	var items []string
	var stateOfItem []int // for each of the items, the index of its state
	for i := range states {
		if states[i].ItemId != "" {
			items = append(items, states[i].ItemId)
			stateOfItem = append(stateOfItem, i)
		}
	}
	if len(items) == 0 {
		return nil
	}

	viewer := req.GetViewerId()
	served, err := v.seen.Served(viewer)
	if err != nil {
		return err
	}
	wasServed := make(map[string]bool, len(served))
	for _, item := range served {
		wasServed[item] = true
	}
	question := seen.Question{User: viewer, Window: int(req.GetWindowMonths()), IgnoreServed: req.GetIgnoreServed()}
	unseen, months, err := v.seen.Unseen(question, views.Candidates{Items: items})
	if err != nil {
		return err
	}
	m.Seen.Count(metrics.ByViewerState, len(items), len(unseen), months)

	// The store returns the unseen items, so all others were seen.
	for _, i := range stateOfItem {
		states[i].Seen = true
		states[i].Served = wasServed[states[i].ItemId]
		states[i].Hidden, err = v.seen.HidesItem(viewer, states[i].ItemId)
		if err != nil {
			return err
		}
	}
	for _, i := range unseen {
		states[stateOfItem[i]].Seen = false
	}
	return nil
}

// fillBoardFollows sets how the viewer follows the board of each pin that lives.
func (v *viewerStores) fillBoardFollows(
	ctx context.Context, viewer string, keys []*skeinv1.ViewerStateKey, boards []string, states []skeinv1.ViewerState,
) error {
	for i, key := range keys {
		if err := call.CheckCanceled(ctx, i); err != nil {
			return err
		}
		if key.GetPin() == nil || states[i].ItemId == "" {
			continue
		}
		f, err := v.relations.BoardFollow(viewer, key.GetPin().GetOwnerId(), boards[i])
		if err != nil {
			return err
		}
		states[i].FollowingBoard = graphservice.FollowKinds[f.Kind]
	}
	return nil
}

// fillUserFollows sets how the viewer follows the owner of each pin, whether or not the pin lives.
func (v *viewerStores) fillUserFollows(viewer string, keys []*skeinv1.ViewerStateKey, states []skeinv1.ViewerState) error {
	// The pins of a page often have the same owners, so each owner is looked up once.
	var owners []string
	indexOfOwner := map[string]int{}
	for _, key := range keys {
		owner := key.GetPin().GetOwnerId()
		if _, known := indexOfOwner[owner]; owner != "" && !known {
			indexOfOwner[owner] = len(owners)
			owners = append(owners, owner)
		}
	}
	follows := make([]graph.Follow, len(owners))
	if err := v.relations.UserFollows(viewer, owners, follows); err != nil {
		return err
	}

	for i, key := range keys {
		if key.GetPin() == nil {
			continue
		}
		owner := key.GetPin().GetOwnerId()
		follow := follows[indexOfOwner[owner]]
		states[i].Following = graphservice.FollowKinds[follow.Kind]
		if follow.Kind == graph.None {
			continue
		}
		settings, err := v.relations.FollowSettings(viewer, owner)
		if err != nil {
			return err
		}
		states[i].FollowSettings = graphservice.FollowSettingsOf(settings)
	}
	return nil
}
