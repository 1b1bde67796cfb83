package feedservice

import (
	"context"
	"slices"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/metrics"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// readOf is the call of ReadFeed that is explained.
func readOf(req *skeinv1.ExplainPinRequest) *skeinv1.ReadFeedRequest {
	return &skeinv1.ReadFeedRequest{
		ReaderId: req.GetReaderId(), Order: req.GetOrder(), IncludeOwn: req.GetIncludeOwn(), HideSeen: req.GetHideSeen(),
		OnePerItem: req.GetOnePerItem(), IgnoreServed: req.GetIgnoreServed(), Only: req.GetOnly(),
	}
}

// ValidateExplainPin looks at the pin, and at the reader and the options as ReadFeed does.
func ValidateExplainPin(c *request.Checker, req *skeinv1.ExplainPinRequest) {
	ValidateReadFeed(c, readOf(req))
	c.ID("pin.owner_id", req.GetPin().GetOwnerId())
	c.ID("pin.pin_id", req.GetPin().GetPinId())
}

// ExplainPin returns why a pin is, or is not, in a feed, from views opened as those of a first page.
func (s *Service) ExplainPin(ctx context.Context, req *skeinv1.ExplainPinRequest, x *call.Info) (*skeinv1.ExplainPinResponse, error) {
	if err := s.expensiveReads.Wait(ctx); err != nil {
		return nil, err
	}
	defer s.expensiveReads.Done()
	least, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenFeed(ctx, x, least)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f, position, opened := feedOf(readOf(req)), r.Position, []*views.StoreView{&r.StoreView}
	if f.Order == inbox.Trending {
		heat, err := s.openHeat(ctx, &f, least)
		if err != nil {
			return nil, err
		}
		defer heat.Close()
		if heat.At.Seq < r.At.Seq {
			position = heat.Position
		}
		opened = append(opened, &heat.StoreView)
	}
	var h *hiding
	if req.GetHideSeen() {
		h = s.hide(ctx, seenByReader(f.Reader, req.GetIgnoreServed()), r.At, 0)
		defer h.close()
		if h.r != nil {
			f.HiddenItems = h.items
		}
	}
	pin := req.GetPin()
	explain := func() (e inbox.Explanation, err error) {
		err = views.RunUntilResolved(ctx, func() (err error) {
			e, err = r.Explain(ctx, f, pin.GetOwnerId(), pin.GetPinId())
			return err
		}, opened...)
		return e, err
	}
	e, err := explain()
	if h != nil && h.broken {
		f.HiddenItems = nil
		e, err = explain()
	}
	if err != nil {
		return nil, err
	}
	res := &skeinv1.ExplainPinResponse{
		InFeed: e.Absence == 0, Pin: &skeinv1.PinState{}, Rank: call.Count(int64(e.Rank)), Delivery: deliveries[e.Delivery],
		Completeness: h.completeness(r), Position: position,
	}
	times := call.NewTimes(1)
	fillPinState(res.Pin, pin, e.Pin, e.Pin != nil, times)
	if e.Rank > 0 {
		res.Score = e.Pin.Score
	}
	for _, a := range absences {
		if e.Absence&a.is != 0 {
			res.Reasons = append(res.Reasons, a.reason)
		}
	}
	if e.Absence&inbox.AbsenceItemHidden != 0 {
		why, err := h.reasons(e.Pin.Item)
		if err != nil {
			return nil, err
		}
		res.Reasons = append(res.Reasons, why...)
		slices.Sort(res.Reasons)
	}
	return res, nil
}

// absences are the reasons of the inbox in the words of the API, but for what is hidden.
var absences = []struct {
	is     inbox.AbsenceReasons
	reason skeinv1.AbsenceReason
}{
	{inbox.AbsenceNotLiving, skeinv1.AbsenceReason_ABSENCE_REASON_NOT_LIVING},
	{inbox.AbsenceOwnPin, skeinv1.AbsenceReason_ABSENCE_REASON_OWN_PIN},
	{inbox.AbsenceNotFollowed, skeinv1.AbsenceReason_ABSENCE_REASON_NOT_FOLLOWED},
	{inbox.AbsenceBoardExcluded, skeinv1.AbsenceReason_ABSENCE_REASON_BOARD_EXCLUDED},
	{inbox.AbsenceOwnerMuted, skeinv1.AbsenceReason_ABSENCE_REASON_OWNER_MUTED},
	{inbox.AbsenceBlocked, skeinv1.AbsenceReason_ABSENCE_REASON_BLOCKED},
	{inbox.AbsenceNotRanked, skeinv1.AbsenceReason_ABSENCE_REASON_NOT_RANKED},
	{inbox.AbsenceItemShown, skeinv1.AbsenceReason_ABSENCE_REASON_ITEM_SHOWN},
	{inbox.AbsenceRepinsHidden, skeinv1.AbsenceReason_ABSENCE_REASON_REPINS_HIDDEN},
	{inbox.AbsenceNotSelected, skeinv1.AbsenceReason_ABSENCE_REASON_NOT_SELECTED},
	{inbox.AbsenceRepinOfMuted, skeinv1.AbsenceReason_ABSENCE_REASON_REPIN_OF_MUTED},
	{inbox.AbsenceRepinOfBlocked, skeinv1.AbsenceReason_ABSENCE_REASON_REPIN_OF_BLOCKED},
	{inbox.AbsenceRepinOfDeleted, skeinv1.AbsenceReason_ABSENCE_REASON_REPIN_OF_DELETED},
	{inbox.AbsenceHidden, skeinv1.AbsenceReason_ABSENCE_REASON_HIDDEN},
}

var deliveries = map[inbox.Delivery]skeinv1.PinDelivery{
	inbox.DeliveryPushed: skeinv1.PinDelivery_PIN_DELIVERY_PUSHED,
	inbox.DeliveryPulled: skeinv1.PinDelivery_PIN_DELIVERY_PULLED,
}

// reasons says why an item is hidden. One that was not played is hidden for what was served, whether or not the list has it: the filter
// compares fingerprints.
func (h *hiding) reasons(item string) (why []skeinv1.AbsenceReason, err error) {
	plays := seenByReader(h.question.User, true)
	unplayed, months, err := h.r.Unseen(plays, views.Candidates{Items: []string{item}})
	if err != nil {
		return nil, err
	}
	h.s.metrics.Seen.Count(metrics.ByFeed, 1, len(unplayed), months)
	if len(unplayed) == 0 {
		why = append(why, skeinv1.AbsenceReason_ABSENCE_REASON_PLAYED)
	}
	if h.question.IgnoreServed {
		return why, nil
	}
	served, err := h.r.Served(h.question.User)
	if len(why) == 0 || slices.Contains(served, item) {
		why = append(why, skeinv1.AbsenceReason_ABSENCE_REASON_SERVED)
	}
	return why, err
}
