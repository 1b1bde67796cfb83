package feedservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidateBatchGetPins says by hand what the rules of the proto say, because a page of a product asks this of all that it shows.
func ValidateBatchGetPins(req *skeinv1.BatchGetPinsRequest) []apierror.Violation {
	var c request.Checker
	c.Length("pins", len(req.GetPins()), 1)
	c.AtLeast(req.GetAtLeast())
	if len(c.Found) > 0 {
		return c.Found
	}
	for i, p := range req.GetPins() {
		c.PinAt("pins", i, "", p)
	}
	return c.Found
}

// BatchGetPins returns each pin as it is, in order. All of them are read at one position.
func (s *Service) BatchGetPins(
	ctx context.Context, req *skeinv1.BatchGetPinsRequest, x *call.Info,
) (*skeinv1.BatchGetPinsResponse, error) {
	least, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenFeed(ctx, x, least)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	pins := req.GetPins()
	if err := x.MakeLong(ctx, len(pins)); err != nil {
		return nil, err
	}
	made, times := make([]skeinv1.PinState, len(pins)), call.NewTimes(len(pins))
	res := &skeinv1.BatchGetPinsResponse{Pins: make([]*skeinv1.PinState, len(pins)), Position: r.Position}
	for i, name := range pins {
		if err := call.Poll(ctx, i); err != nil {
			return nil, err
		}
		p, lives, err := r.Pin(name.GetOwnerId(), name.GetPinId())
		if err != nil {
			return nil, err
		}
		res.Pins[i] = &made[i]
		fillPinState(&made[i], name, &p, lives, times)
	}
	return res, nil
}

// fillPinState fills in what a pin is.
func fillPinState(to *skeinv1.PinState, name *skeinv1.Pin, p *inbox.Pin, lives bool, times *call.Times) {
	to.OwnerId, to.PinId = name.GetOwnerId(), name.GetPinId()
	if lives {
		to.Living, to.BoardId, to.ItemId = true, p.Board, p.Item
		to.CreateTime, to.Attributes = times.Of(p.Created), p.Attributes
		to.RepinOf, to.RepinOfDeleted = repinOf(p)
	}
}

// repinOf returns the name of the pin that a pin repeats, or nil if it repeats none or if the owner of that pin was deleted since.
func repinOf(p *inbox.Pin) (original *skeinv1.Pin, deleted bool) {
	if !p.Repin {
		return nil, false
	}
	if p.RepinOwner == "" {
		return nil, true
	}
	return &skeinv1.Pin{OwnerId: p.RepinOwner, PinId: p.RepinPin}, false
}
