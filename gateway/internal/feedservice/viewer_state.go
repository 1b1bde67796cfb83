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

// ValidateBatchGetViewerState says by hand what the rules of the proto say, because a page of a product asks this of all that it shows.
func ValidateBatchGetViewerState(req *skeinv1.BatchGetViewerStateRequest) []apierror.Violation {
	var c request.Checker
	c.Length("keys", len(req.GetKeys()), 1)
	c.AtLeast(req.GetAtLeast())
	if len(c.Found) > 0 {
		return c.Found
	}
	if req.GetWindowMonths() < 0 {
		c.Found = append(c.Found, apierror.InvalidField("window_months", "is %d: must be 0 or more", req.GetWindowMonths()))
	}
	c.ID("viewer_id", req.GetViewerId())
	for i, k := range req.GetKeys() {
		switch t := k.GetTarget().(type) {
		case *skeinv1.ViewerStateKey_Pin:
			c.PinAt("keys", i, ".pin", t.Pin)
		case *skeinv1.ViewerStateKey_ItemId:
			c.IDAt("keys", i, ".item_id", t.ItemId)
		default:
			c.FoundAt("keys", i, ".target", "must be given: pin or item_id")
		}
	}
	return c.Found
}

// BatchGetViewerState returns what the viewer has to do with each key, in order.
//
// Four stores answer, each from a view of its own: the pins say which items are meant, and the others are asked about these. Each view
// contains what the call demands, and the position of the answer is the least of the four.
func (s *Service) BatchGetViewerState(
	ctx context.Context, req *skeinv1.BatchGetViewerStateRequest, x *call.Info,
) (*skeinv1.BatchGetViewerStateResponse, error) {
	least, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	v, err := s.openViewer(ctx, x, least)
	if err != nil {
		return nil, err
	}
	defer v.close()
	keys := req.GetKeys()
	if err := x.MakeLong(ctx, len(keys)); err != nil {
		return nil, err
	}
	made := make([]skeinv1.ViewerState, len(keys))
	res := &skeinv1.BatchGetViewerStateResponse{States: make([]*skeinv1.ViewerState, len(keys)), Position: v.position}
	for i := range made {
		res.States[i] = &made[i]
	}
	var boards []string
	err = views.RunUntilResolved(ctx, func() (err error) {
		boards, err = v.items(ctx, keys, made)
		return err
	}, &v.pins.StoreView)
	if err != nil {
		return nil, err
	}
	err = views.RunUntilResolved(ctx, func() error { return v.reactions(ctx, req.GetViewerId(), made) }, &v.counters.StoreView)
	if err != nil {
		return nil, err
	}
	if err := v.history(req, made, s.metrics); err != nil {
		return nil, err
	}
	err = views.RunUntilResolved(ctx, func() error { return v.boards(ctx, req.GetViewerId(), keys, boards, made) }, &v.relations.StoreView)
	if err != nil {
		return nil, err
	}
	return res, v.follows(req.GetViewerId(), keys, made)
}

// viewerStores are the stores that know something of a viewer, each at one position.
type viewerStores struct {
	pins      *views.Inbox
	relations *views.Graph
	seen      *views.Seen
	counters  *views.Counters
	// opened are those of them that are open, and position is the least of theirs.
	opened   []*views.StoreView
	position string
}

// openViewer opens the stores. The lag of the call is that of the store that is furthest behind.
func (s *Service) openViewer(ctx context.Context, x *call.Info, least views.Demand) (*viewerStores, error) {
	v := &viewerStores{}
	if err := v.open(ctx, s, x, least); err != nil {
		v.close()
		return nil, err
	}
	first := v.opened[0]
	for _, o := range v.opened[1:] {
		if o.At.Seq < first.At.Seq {
			first = o
		}
	}
	v.position = first.Position
	return v, nil
}

func (v *viewerStores) open(ctx context.Context, s *Service, x *call.Info, least views.Demand) (err error) {
	lag := x.Lag
	keep := func(o *views.StoreView) {
		v.opened = append(v.opened, o)
		lag = max(lag, x.Lag)
		x.Lag = lag
	}
	if v.pins, err = s.OpenFeed(ctx, x, least); err != nil {
		return err
	}
	keep(&v.pins.StoreView)
	if v.relations, err = s.Open(ctx, x, least); err != nil {
		return err
	}
	keep(&v.relations.StoreView)
	if v.seen, err = s.OpenSeen(ctx, x, least); err != nil {
		return err
	}
	keep(&v.seen.StoreView)
	if v.counters, err = s.OpenCounters(ctx, x, least); err != nil {
		return err
	}
	keep(&v.counters.StoreView)
	return nil
}

func (v *viewerStores) close() {
	for _, o := range v.opened {
		o.Close()
	}
}

// items fills in which items are meant, and returns the boards of the pins that live.
func (v *viewerStores) items(ctx context.Context, keys []*skeinv1.ViewerStateKey, to []skeinv1.ViewerState) (boards []string, err error) {
	boards = make([]string, len(keys))
	for i, key := range keys {
		if err := call.Poll(ctx, i); err != nil {
			return nil, err
		}
		name := key.GetPin()
		if name == nil {
			to[i].ItemId = key.GetItemId()
			continue
		}
		p, lives, err := v.pins.Pin(name.GetOwnerId(), name.GetPinId())
		if err != nil {
			return nil, err
		}
		if lives {
			to[i].ItemId, boards[i] = p.Item, p.Board
		}
	}
	return boards, nil
}

// reactions fills in with which kinds the viewer reacted to the items.
func (v *viewerStores) reactions(ctx context.Context, viewer string, to []skeinv1.ViewerState) error {
	for i := range to {
		if err := call.Poll(ctx, i); err != nil {
			return err
		}
		if to[i].ItemId == "" {
			continue
		}
		kinds, err := v.counters.OwnReactions(viewer, to[i].ItemId)
		if err != nil {
			return err
		}
		to[i].Reactions = make([]string, len(kinds))
		for k, kind := range kinds {
			to[i].Reactions[k] = events.ReactionName(kind)
		}
	}
	return nil
}

// history fills in what the viewer has seen, by the code that answers FilterSeen, and what was served.
func (v *viewerStores) history(req *skeinv1.BatchGetViewerStateRequest, to []skeinv1.ViewerState, m *metrics.Metrics) error {
	var items []string
	var of []int
	for i := range to {
		if to[i].ItemId != "" {
			items, of = append(items, to[i].ItemId), append(of, i)
		}
	}
	if len(items) == 0 {
		return nil
	}
	served, err := v.seen.Served(req.GetViewerId())
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(served))
	for _, item := range served {
		known[item] = true
	}
	question := seen.Question{User: req.GetViewerId(), Window: int(req.GetWindowMonths()), IgnoreServed: req.GetIgnoreServed()}
	unseen, months, err := v.seen.Unseen(question, views.Candidates{Items: items})
	if err != nil {
		return err
	}
	m.Seen.Count(metrics.ByViewerState, len(items), len(unseen), months)
	for _, i := range of {
		to[i].Seen, to[i].Served = true, known[to[i].ItemId]
		if to[i].Hidden, err = v.seen.HidesItem(req.GetViewerId(), to[i].ItemId); err != nil {
			return err
		}
	}
	for _, i := range unseen {
		to[of[i]].Seen = false
	}
	return nil
}

// boards fills in how the viewer follows the boards of pins that live.
func (v *viewerStores) boards(
	ctx context.Context, viewer string, keys []*skeinv1.ViewerStateKey, boards []string, to []skeinv1.ViewerState,
) error {
	for i, key := range keys {
		if err := call.Poll(ctx, i); err != nil {
			return err
		}
		if key.GetPin() == nil || to[i].ItemId == "" {
			continue
		}
		f, err := v.relations.BoardFollow(viewer, key.GetPin().GetOwnerId(), boards[i])
		if err != nil {
			return err
		}
		to[i].FollowingBoard = graphservice.FollowKinds[f.Kind]
	}
	return nil
}

// follows fills in how the viewer follows the owners of pins.
func (v *viewerStores) follows(viewer string, keys []*skeinv1.ViewerStateKey, to []skeinv1.ViewerState) error {
	var owners []string
	at := map[string]int{}
	for _, key := range keys {
		owner := key.GetPin().GetOwnerId()
		if _, known := at[owner]; owner != "" && !known {
			at[owner] = len(owners)
			owners = append(owners, owner)
		}
	}
	follows := make([]graph.Follow, len(owners))
	if err := v.relations.UserFollows(viewer, owners, follows); err != nil {
		return err
	}
	for i, key := range keys {
		if p := key.GetPin(); p != nil {
			follow := follows[at[p.GetOwnerId()]]
			to[i].Following = graphservice.FollowKinds[follow.Kind]
			if follow.Kind == graph.None {
				continue
			}
			settings, err := v.relations.FollowSettings(viewer, p.GetOwnerId())
			if err != nil {
				return err
			}
			to[i].FollowSettings = graphservice.FollowSettingsOf(settings)
		}
	}
	return nil
}
