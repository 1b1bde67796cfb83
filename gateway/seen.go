package gateway

import (
	"context"
	"fmt"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/seen"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// seenReading is the seen store at one position.
type seenReading struct {
	*seen.Queries
	opened
}

// openSeen returns the seen store at a position that contains all that is demanded.
func (s *Server) openSeen(ctx context.Context, x *extra, demands ...demand) (*seenReading, error) {
	o, err := s.openStore(ctx, s.seen, &s.seenState.names, x, demands)
	if err != nil {
		return nil, err
	}
	return &seenReading{Queries: seen.Query(o.view, s.seenSettings), opened: o}, nil
}

// settingsOfSeen are those that a store was folded with.
func settingsOfSeen(store *projections.Live) (seen.Settings, error) {
	p, ok := store.Projection().(*seen.Seen)
	if !ok {
		return seen.Settings{}, fmt.Errorf("gateway: the store of %s is not that of seen", store.Name())
	}
	return p.Config(), nil
}

// maxCandidates of one FilterSeen.
const maxCandidates = 10_000

// checkFilterSeen says by hand what the rules of the proto say, because this call is hot and large.
func checkFilterSeen(req *skeinv1.FilterSeenRequest) []apierror.Violation {
	var c request.Checker
	c.AtMostItems("item_ids", len(req.GetItemIds()), maxCandidates)
	c.AtMostItems("numeric_ids", len(req.GetNumericIds()), maxCandidates)
	c.AtLeast(req.GetAtLeast())
	if len(c.Found) > 0 {
		return c.Found
	}
	if len(req.GetItemIds()) > 0 && len(req.GetNumericIds()) > 0 {
		c.Found = append(c.Found, apierror.InvalidField("item_ids", "or numeric_ids must be given, not both"))
	}
	if req.GetWindowMonths() < 0 {
		c.Found = append(c.Found, apierror.InvalidField("window_months", "is %d: must be 0 or more", req.GetWindowMonths()))
	}
	c.ID("user_id", req.GetUserId())
	c.IDs("item_ids", req.GetItemIds())
	return c.Found
}

func (s *Server) filterSeen(
	ctx context.Context, req *skeinv1.FilterSeenRequest, x *extra,
) (*skeinv1.FilterSeenResponse, error) {
	least, err := demandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.openSeen(ctx, x, least)
	if err != nil {
		return nil, err
	}
	defer r.close()
	question := seen.Question{
		User: req.GetUserId(), Window: int(req.GetWindowMonths()), IgnoreServed: req.GetIgnoreServed(),
	}
	unseen, months, err := s.unseen(r, byFilter, question, candidates{req.GetItemIds(), req.GetNumericIds()})
	if err != nil {
		return nil, err
	}
	return &skeinv1.FilterSeenResponse{UnseenIndexes: unseen, MonthsRead: int32(months), Position: r.position}, nil
}

// candidates are items by their ids, or by their numbers.
type candidates struct {
	items   []string
	numeric []uint64
}

// unseen returns the indexes of the candidates that are not seen, and how many months of plays were read. It is the one
// filter of FilterSeen and of feeds.
func (s *Server) unseen(r *seenReading, by askedBy, x seen.Question, c candidates) (unseen []uint32, months int, err error) {
	total := len(c.items) + len(c.numeric)
	unseen = make([]uint32, 0, total)
	if len(c.numeric) > 0 {
		unseen, months, err = r.FilterNumeric(x, c.numeric, unseen)
	} else {
		unseen, months, err = r.Filter(x, c.items, unseen)
	}
	if err == nil {
		s.metrics.seen.count(by, total, len(unseen), months)
	}
	return unseen, months, err
}

func (s *Server) listServed(
	ctx context.Context, req *skeinv1.ListServedRequest, x *extra,
) (*skeinv1.ListServedResponse, error) {
	least, err := demandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.openSeen(ctx, x, least)
	if err != nil {
		return nil, err
	}
	defer r.close()
	items, err := r.Served(req.GetUserId())
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListServedResponse{ItemIds: items, Position: r.position}, nil
}
