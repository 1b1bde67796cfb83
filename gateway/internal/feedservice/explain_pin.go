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

// feedToExplain returns the request of ReadFeed for the feed that is explained.
func feedToExplain(req *skeinv1.ExplainPinRequest) *skeinv1.ReadFeedRequest {
	return &skeinv1.ReadFeedRequest{
		ReaderId: req.GetReaderId(), Order: req.GetOrder(), IncludeOwn: req.GetIncludeOwn(), HideSeen: req.GetHideSeen(),
		OnePerItem: req.GetOnePerItem(), IgnoreServed: req.GetIgnoreServed(), Only: req.GetOnly(),
	}
}

// ValidateExplainPin checks the pin, and checks the reader and the options as ReadFeed does.
func ValidateExplainPin(c *request.Checker, req *skeinv1.ExplainPinRequest) {
	ValidateReadFeed(c, feedToExplain(req))
	c.RequireID("pin.owner_id", req.GetPin().GetOwnerId())
	c.RequireID("pin.pin_id", req.GetPin().GetPinId())
}

// ExplainPin returns why a pin is in a feed or not. It opens the same views as ReadFeed does for a
// first page.
func (s *Service) ExplainPin(ctx context.Context, req *skeinv1.ExplainPinRequest, info *call.Info) (*skeinv1.ExplainPinResponse, error) {
	atLeast, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenInbox(ctx, info, atLeast)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f := feedOf(feedToExplain(req))
	opened := []*views.StoreView{&r.StoreView}
	if f.Order == inbox.Trending {
		heat, err := s.openHeat(ctx, &f, atLeast)
		if err != nil {
			return nil, err
		}
		defer heat.Close()
		opened = append(opened, &heat.StoreView)
	}
	var filter *seenFilter // nil if the feed does not hide what was seen
	if req.GetHideSeen() {
		filter = s.openSeenFilter(ctx, seenQuestion(f.Reader, req.GetIgnoreServed()), r.At, 0)
		defer filter.close()
		if filter.view != nil {
			f.HiddenItems = filter.hasSeen
		}
	}

	// The rank of a pin needs the whole feed above it. Wait for a place only when all stores are
	// open. Otherwise calls that wait for a store which lags could hold all places.
	if err := s.expensiveReads.Wait(ctx); err != nil {
		return nil, err
	}
	defer s.expensiveReads.Done()

	pin := req.GetPin()
	explain := func() (e inbox.Explanation, err error) {
		err = views.RunUntilResolved(ctx, func() (err error) {
			e, err = r.Explain(ctx, f, pin.GetOwnerId(), pin.GetPinId())
			return err
		}, opened...)
		return e, err
	}
	// hasSeen is called while explain runs, so only now is it known whether the seen store answers.
	e, err := explain()
	if filter != nil && filter.hasFailed {
		// ReadFeed would hide nothing, either.
		f.HiddenItems = nil
		e, err = explain()
	}
	if err != nil {
		return nil, err
	}

	res := &skeinv1.ExplainPinResponse{
		InFeed: e.Absence == 0, Pin: &skeinv1.PinState{}, Rank: call.Count(int64(e.Rank)), Delivery: deliveries[e.Delivery],
		Completeness: filter.completeness(r), Position: views.OldestPosition(opened...),
	}
	fillPinState(res.Pin, pin, e.Pin, e.Pin != nil, call.NewTimes(1))
	if e.Rank > 0 {
		res.Score = e.Pin.Score
	}
	for _, a := range absences {
		if e.Absence&a.inInbox != 0 {
			res.Reasons = append(res.Reasons, a.reason)
		}
	}
	if e.Absence&inbox.AbsenceItemHidden != 0 {
		reasons, err := filter.reasonsFor(e.Pin.Item)
		if err != nil {
			return nil, err
		}
		res.Reasons = append(res.Reasons, reasons...)
		slices.Sort(res.Reasons)
	}
	return res, nil
}

// absences translates the reasons of the inbox into those of the API. It lacks
// [inbox.AbsenceItemHidden], which says that the seen filter hides the item; the reasons for that
// come from [seenFilter.reasonsFor].
var absences = []struct {
	inInbox inbox.AbsenceReasons
	reason  skeinv1.AbsenceReason
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

// reasonsFor returns why the filter hides an item: it was played, served, or both. The seen store
// compares fingerprints of items, and these may match by chance. So an item that matches no play
// must match a served item, and gets the reason SERVED even if the list of served items lacks it.
func (f *seenFilter) reasonsFor(item string) (reasons []skeinv1.AbsenceReason, err error) {
	playsOnly := seenQuestion(f.question.User, true)
	unplayed, months, err := f.view.Unseen(playsOnly, views.Candidates{Items: []string{item}})
	if err != nil {
		return nil, err
	}
	f.service.metrics.Seen.Count(metrics.ByFeed, 1, len(unplayed), months)
	wasPlayed := len(unplayed) == 0
	if wasPlayed {
		reasons = append(reasons, skeinv1.AbsenceReason_ABSENCE_REASON_PLAYED)
	}
	if f.question.IgnoreServed {
		return reasons, nil
	}
	served, err := f.view.Served(f.question.User)
	if !wasPlayed || slices.Contains(served, item) {
		reasons = append(reasons, skeinv1.AbsenceReason_ABSENCE_REASON_SERVED)
	}
	return reasons, err
}
