package feedservice

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidateBatchGetPins checks by hand what the rules of the proto say. It is faster than they are,
// and each page of a product makes this call for all the pins that it shows.
func ValidateBatchGetPins(req *skeinv1.BatchGetPinsRequest) []apierror.Violation {
	var c request.Checker
	c.RequireLength("pins", len(req.GetPins()), 1)
	c.RequirePosition(req.GetAtLeast())
	if len(c.Violations) > 0 {
		return c.Violations
	}
	for i, p := range req.GetPins() {
		c.RequirePinAt("pins", i, "", p)
	}
	return c.Violations
}

// BatchGetPins returns each pin as it is, in the order of the request. It reads all of them at one
// position.
func (s *Service) BatchGetPins(
	ctx context.Context, req *skeinv1.BatchGetPinsRequest, info *call.Info,
) (*skeinv1.BatchGetPinsResponse, error) {
	atLeast, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenInbox(ctx, info, atLeast)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	pins := req.GetPins()
	if err := info.ReserveLongPage(ctx, len(pins)); err != nil {
		return nil, err
	}
	states := make([]skeinv1.PinState, len(pins))
	times := call.NewTimes(len(pins))
	res := &skeinv1.BatchGetPinsResponse{Pins: make([]*skeinv1.PinState, len(pins)), Position: r.Position}
	for i, name := range pins {
		if err := call.CheckCanceled(ctx, i); err != nil {
			return nil, err
		}
		p, lives, err := r.Pin(name.GetOwnerId(), name.GetPinId())
		if err != nil {
			return nil, err
		}
		res.Pins[i] = &states[i]
		fillPinState(&states[i], name, &p, lives, times)
	}
	return res, nil
}

// fillPinState sets the fields of to from a pin. If the pin does not live, only its name is set.
func fillPinState(to *skeinv1.PinState, name *skeinv1.Pin, p *inbox.Pin, lives bool, times *call.Times) {
	to.OwnerId = name.GetOwnerId()
	to.PinId = name.GetPinId()
	if !lives {
		return
	}
	to.Living = true
	to.BoardId = p.Board
	to.ItemId = p.Item
	to.CreateTime = times.Next(p.Created)
	to.Attributes = p.Attributes
	to.EditTime = editTime(p)
	to.RepinOf, to.RepinOfDeleted = repinOf(p)
}

// editTime returns when a pin was last edited, or nil if it was not. Few pins are edited, so it
// allocates for each that was.
func editTime(p *inbox.Pin) *timestamppb.Timestamp {
	if p.Edited == 0 {
		return nil
	}
	return timestamppb.New(p.Edited.Time())
}

// repinOf returns the name of the pin that p repeats. It returns nil if p is no re-pin, or if the
// owner of the repeated pin was deleted since, in which case isDeleted is true.
func repinOf(p *inbox.Pin) (original *skeinv1.Pin, isDeleted bool) {
	if !p.Repin {
		return nil, false
	}
	// The deletion of a user erases the user's id from the re-pins of others.
	if p.RepinOwner == "" {
		return nil, true
	}
	return &skeinv1.Pin{OwnerId: p.RepinOwner, PinId: p.RepinPin}, false
}
