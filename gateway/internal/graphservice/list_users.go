package graphservice

import (
	"context"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The lists of users: following, followers, mutuals, blocked, muted. docs of each stand in the proto.

// ValidateListMutuals looks at both ids.
func ValidateListMutuals(c *request.Checker, req *skeinv1.ListMutualsRequest) {
	c.ID("viewer_id", req.GetViewerId())
	c.ID("user_id", req.GetUserId())
}

// byKind chooses the list of a kind; any other kind was refused before.
func byKind(k skeinv1.FollowKind, both, explicit, implicit graph.ListKind) graph.ListKind {
	switch k {
	case skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT:
		return explicit
	case skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT:
		return implicit
	}
	return both
}

// ValidateListFollowing looks at the user, and at options that exclude each other.
func ValidateListFollowing(c *request.Checker, req *skeinv1.ListFollowingRequest) {
	c.ID("user_id", req.GetUserId())
	if req.Kind != nil && req.GetOnly() != skeinv1.FollowSetting_FOLLOW_SETTING_UNSPECIFIED {
		c.Found = append(c.Found, apierror.InvalidField("kind", "must be absent with only: follows of both kinds have settings"))
	}
}

// ListFollowing returns a page of the users whom a user follows.
func (s *Service) ListFollowing(
	ctx context.Context, req *skeinv1.ListFollowingRequest, x *call.Info,
) (*skeinv1.ListFollowingResponse, error) {
	kind := byKind(req.GetKind(), graph.Following, graph.FollowingExplicit, graph.FollowingImplicit)
	switch SettingOf(req.GetOnly()) {
	case events.SettingFavorite:
		kind = graph.Favorites
	case events.SettingNotify:
		kind = graph.Notifying
	}
	p, err := s.page(ctx, graph.List{Kind: kind, User: req.GetUserId()}, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListFollowingResponse{
		Entries: followEntries(p.entries), NextPageToken: p.next, TotalSize: p.total, Position: p.position,
	}, nil
}

// ListFollowers returns a page of the users who follow a user.
func (s *Service) ListFollowers(
	ctx context.Context, req *skeinv1.ListFollowersRequest, x *call.Info,
) (*skeinv1.ListFollowersResponse, error) {
	kind := byKind(req.GetKind(), graph.Followers, graph.FollowersExplicit, graph.FollowersImplicit)
	p, err := s.page(ctx, graph.List{Kind: kind, User: req.GetUserId()}, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListFollowersResponse{
		Entries: followEntries(p.entries), NextPageToken: p.next, TotalSize: p.total, Position: p.position,
	}, nil
}

// ListMutuals returns a page of the users whom the viewer follows and who follow the user.
func (s *Service) ListMutuals(
	ctx context.Context, req *skeinv1.ListMutualsRequest, x *call.Info,
) (*skeinv1.ListMutualsResponse, error) {
	l := graph.List{Kind: graph.Mutuals, User: req.GetViewerId(), Peer: req.GetUserId()}
	p, err := s.page(ctx, l, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListMutualsResponse{
		Entries: followEntries(p.entries), NextPageToken: p.next, Position: p.position,
	}, nil
}

// ListBlocked returns a page of the users whom a user blocks.
func (s *Service) ListBlocked(
	ctx context.Context, req *skeinv1.ListBlockedRequest, x *call.Info,
) (*skeinv1.ListBlockedResponse, error) {
	p, err := s.page(ctx, graph.List{Kind: graph.Blocked, User: req.GetUserId()}, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListBlockedResponse{
		Entries: userEntries(p.entries), NextPageToken: p.next, TotalSize: p.total, Position: p.position,
	}, nil
}

// ListMuted returns a page of the users whom a user mutes.
func (s *Service) ListMuted(
	ctx context.Context, req *skeinv1.ListMutedRequest, x *call.Info,
) (*skeinv1.ListMutedResponse, error) {
	p, err := s.page(ctx, graph.List{Kind: graph.Muted, User: req.GetUserId()}, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListMutedResponse{
		Entries: userEntries(p.entries), NextPageToken: p.next, TotalSize: p.total, Position: p.position,
	}, nil
}
